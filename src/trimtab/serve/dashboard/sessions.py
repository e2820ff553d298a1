"""Sessions of signed-in browsers, which last no longer than their tokens; and the sign-in page."""

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
"""Seconds after which a session ends."""

AT_THE_MACHINE = ""
"""Session of browsers on this machine, while no token has been made."""

_MOST = 10_000


@dataclass(slots=True)
class SignInSessions:
    """Sessions by random names; the texts of their tokens are kept in memory only."""

    access: Access
    clock: Clock = field(default_factory=RealClock)
    _known: dict[str, tuple[str, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, token: str) -> str:
        """Name of a new session for a token's holder; raises if the token is not valid."""
        self.access.holder(token)
        now, name = self.clock.monotonic(), secrets.token_urlsafe(32)
        with self._lock:
            if len(self._known) >= _MOST:
                self._forget(now)
            self._known[name] = (token, now + LASTS)
        return name

    def end(self, name: str) -> None:
        with self._lock:
            self._known.pop(name, None)

    def find(self, cookies: str, here: bool) -> str | None:
        """Session that a request's cookies name, or that of a browser `here`; None for others."""
        name = _named(cookies)
        if name in self._known:
            return name
        return AT_THE_MACHINE if here and self.access.open_here else None

    def holder(self, name: str) -> Principal:
        """Principal of a session; raises once the session or its token has ended."""
        if name == AT_THE_MACHINE:
            if self.access.open_here:
                return LOCAL
            raise UnknownCallerError("there are tokens now; sign in with one")
        token, until = self._known.get(name, ("", 0.0))
        if self.clock.monotonic() >= until:
            self.end(name)
            raise UnknownCallerError("the session has ended; sign in again")
        try:
            return self.access.holder(token)
        except UnknownCallerError:
            self.end(name)
            raise

    def open(self, name: str | None) -> bool:
        if name is None:
            return False
        try:
            self.holder(name)
        except TrimtabError:
            return False
        return True

    def _forget(self, now: float) -> None:
        """Drop sessions that have ended; the oldest half if there are none."""
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
    """Value of the Set-Cookie header for a session; an empty name deletes the cookie."""
    lasting = "" if name else "; Max-Age=0"
    return f"{COOKIE}={name}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}{lasting}"


_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 26rem; margin: 12vh auto; padding: 0 1rem; }
label { display: block; margin: 1rem 0 .25rem; } input, button { font: inherit; padding: .5rem .75rem; }
input { width: 100%; box-sizing: border-box; } button { margin-top: 1rem; }
[role=alert] { border-left: 4px solid #c62828; padding-left: .75rem; }
"""


def sign_in_form(then: str, problem: str = "") -> bytes:
    """The sign-in form, which leads to the page `then`; `problem` is shown above it."""
    alert = f"<p role=alert>{escape(problem)}</p>" if problem else ""
    action = f"/sign-in?then={quote(then, safe='')}"
    return _sign_in_page(
        f"<h1>Trimtab</h1>{alert}"
        f'<form method="post" action="{escape(action)}">'
        '<label for="token">Token</label>'
        '<input id="token" name="token" type="password" autocomplete="off" required autofocus>'
        '<button type="submit">Sign in</button></form>'
        "<p>An admin makes tokens with <code>trimtab access make</code>.</p>"
    )


def sign_in_message(sentence: str) -> bytes:
    return _sign_in_page(f"<h1>Trimtab</h1><p>{escape(sentence)}</p>")


def _sign_in_page(body: str) -> bytes:
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Sign in - Trimtab</title><style>{_STYLE}</style></head>"
    )
    return f"{head}<body><main>{body}</main></body></html>".encode()
