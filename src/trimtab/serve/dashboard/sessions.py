"""Sessions: a browser's cookie names one, which lasts no longer than its token; and the sign-in page."""

import secrets
import threading
from dataclasses import dataclass, field
from html import escape
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote

from trimtab.core import Clock, RealClock, TrimtabError
from trimtab.serve.access import LOCAL, Access, Principal, UnknownCallerError

COOKIE = "trimtab_session"
LASTS = 12 * 3600.0
"""Seconds after which somebody signs in again."""

AT_THE_MACHINE = ""
"""The session of who needs none: somebody at the machine itself, while there is no token."""

_MOST = 10_000


@dataclass(slots=True)
class Sessions:
    """Sessions by their names, which nobody can guess; tokens' texts stay in memory and go nowhere else."""

    access: Access
    clock: Clock = field(default_factory=RealClock)
    _known: dict[str, tuple[str, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, token: str) -> str:
        """The name of a new session for who holds a token; raises where the token opens nothing."""
        self.access.holder(token)
        now, name = self.clock.now(), secrets.token_urlsafe(32)
        with self._lock:
            if len(self._known) >= _MOST:
                self._forget(now)
            self._known[name] = (token, now + LASTS)
        return name

    def end(self, name: str) -> None:
        """Nobody comes in by it any more."""
        with self._lock:
            self._known.pop(name, None)

    def find(self, cookies: str, here: bool) -> str | None:
        """The session that a request's cookies name, or that of somebody `here`; None for strangers."""
        name = _named(cookies)
        if name in self._known:
            return name
        return AT_THE_MACHINE if here and self.access.open_here else None

    def holder(self, name: str) -> Principal:
        """Who a session is of; raises once it is over, or its token is."""
        if name == AT_THE_MACHINE:
            if self.access.open_here:
                return LOCAL
            raise UnknownCallerError("there are tokens now; sign in with one")
        token, until = self._known.get(name, ("", 0.0))
        if self.clock.now() >= until:
            self.end(name)
            raise UnknownCallerError("you have been signed out; sign in again")
        try:
            return self.access.holder(token)
        except UnknownCallerError:
            self.end(name)
            raise

    def open(self, name: str | None) -> bool:
        """Whether a session lets somebody in now."""
        if name is None:
            return False
        try:
            self.holder(name)
        except TrimtabError:
            return False
        return True

    def _forget(self, now: float) -> None:
        """Those that are over; the oldest half where none is."""
        kept = {name: (token, until) for name, (token, until) in self._known.items() if until > now}
        self._known = kept if len(kept) < _MOST else dict(list(kept.items())[_MOST // 2 :])


def _named(cookies: str) -> str:
    jar = SimpleCookie()
    try:
        jar.load(cookies)
    except CookieError:
        return AT_THE_MACHINE
    return jar[COOKIE].value if COOKIE in jar else AT_THE_MACHINE


def session_cookie(name: str, secure: bool) -> str:
    """The header that keeps a session in the browser; an empty name takes it away."""
    lasting = "" if name else "; Max-Age=0"
    return f"{COOKIE}={name}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}{lasting}"


_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 26rem; margin: 12vh auto; padding: 0 1rem; }
label { display: block; margin: 1rem 0 .25rem; } input, button { font: inherit; padding: .5rem .75rem; }
input { width: 100%; box-sizing: border-box; } button { margin-top: 1rem; }
[role=alert] { border-left: 4px solid #c62828; padding-left: .75rem; }
"""


def sign_in_form(then: str, told: str = "") -> bytes:
    """The form; afterwards it goes to the page `then`. `told` is what went wrong before."""
    said = f"<p role=alert>{escape(told)}</p>" if told else ""
    action = f"/sign-in?then={quote(then, safe='')}"
    return _sign_in_page(
        f"<h1>Trimtab</h1>{said}"
        f'<form method="post" action="{escape(action)}">'
        '<label for="token">Token</label>'
        '<input id="token" name="token" type="password" autocomplete="off" required autofocus>'
        '<button type="submit">Sign in</button></form>'
        "<p>An admin makes tokens with <code>trimtab access make</code>.</p>"
    )


def sign_in_message(sentence: str) -> bytes:
    """One sentence."""
    return _sign_in_page(f"<h1>Trimtab</h1><p>{escape(sentence)}</p>")


def _sign_in_page(body: str) -> bytes:
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Sign in - Trimtab</title><style>{_STYLE}</style></head>"
    )
    return f"{head}<body><main>{body}</main></body></html>".encode()
