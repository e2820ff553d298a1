"""Admits requests to the dashboard: signed-in sessions, no page of another site, strict browser policy.

NiceGUI compiles its templates in the browser and starts with inline scripts. So scripts need `unsafe-eval`,
but inline ones run only with a number that is new for every page: what is written into a page as text never
runs. Styles are inline too, in attributes, which no number can cover. Nothing comes from anywhere else.
"""

import secrets
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from trimtab.core import TrimtabError, is_loopback
from trimtab.serve.dashboard.sessions import (
    AT_THE_MACHINE,
    Sessions,
    session_cookie,
    sign_in_form,
    sign_in_message,
)
from trimtab.serve.dashboard.visit import KEY, Visit, same_session
from trimtab.serve.http.gate import Buckets, retry_after

Headers = list[tuple[bytes, bytes]]

_FIXED: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), usb=()"),
]


def new_number() -> str:
    """For one page's own scripts."""
    return secrets.token_urlsafe(18)


def security_headers(number: str = "") -> Headers:
    """What every answer says; without a number, no script at all runs on it."""
    scripts = f"'self' 'unsafe-eval' 'nonce-{number}'" if number else "'none'"
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        f"font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return [*_FIXED, (b"content-security-policy", policy.encode())]


def numbered(page: bytes, number: str) -> bytes:
    """A page whose scripts carry the number. Data are in it with every < written as an entity."""
    return page.replace(b"<script", b'<script nonce="' + number.encode() + b'"')


def header(scope: Any, name: bytes) -> str:
    """The first header of a name in small letters; "" where there is none."""
    return next((value.decode("latin-1") for known, value in scope["headers"] if known == name), "")


def from_our_page(scope: Any) -> bool:
    """Whether a request that may change something was made by a page of ours, by what the browser says."""
    origin = header(scope, b"origin")
    return origin != "" and origin.partition("://")[2] == header(scope, b"host")


def to_this_machine(scope: Any, hosts: frozenset[str]) -> bool:
    """Whether it was asked for by a name of this machine's; without a token, no other may stand for it."""
    host = header(scope, b"host")
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    return is_loopback(name.strip("[]")) or host in hosts


_OWN = ("/_nicegui", "/static/", "/favicon.ico")  # scripts and styles: the same for everybody
_SOCKET = "/_nicegui_ws/"
_CLIENT = "/_nicegui/client/"
_LONGEST_FORM = 4096
_HTML = (b"content-type", b"text/html; charset=utf-8")
_TRIES_PER_SECOND, _TRIES_AT_ONCE = 0.5, 10.0  # of one address, at signing in


class Door:
    """In front of `pages`; `begin` makes the visit of a session."""

    def __init__(
        self,
        pages: Any,
        sessions: Sessions,
        begin: Callable[[str], Visit],
        secure: bool,
        hosts: frozenset[str],
    ) -> None:
        self._pages, self._sessions, self._begin = pages, sessions, begin
        self._secure, self._hosts = secure, hosts
        self._tries = Buckets(_TRIES_PER_SECOND, _TRIES_AT_ONCE)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request or connection."""
        session = self._session(scope)
        if scope["type"] == "websocket":
            if session is None or not from_our_page(scope) or not self._own_page(scope, session):
                await send({"type": "websocket.close", "code": 1008})
                return
            scope[KEY] = self._begin(session)
            await self._pages(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send, session)

    def _session(self, scope: Any) -> str | None:
        """Of who asks, as far as it still lets them in."""
        address = scope["client"][0] if scope["client"] else ""
        here = address != "" and is_loopback(address.removeprefix("::ffff:"))
        found = self._sessions.find(header(scope, b"cookie"), here and to_this_machine(scope, self._hosts))
        return found if self._sessions.open(found) else None

    async def _http(self, scope: Any, receive: Any, send: Any, session: str | None) -> None:
        path, method = scope["path"], scope["method"]
        if method not in ("GET", "HEAD") and not from_our_page(scope):
            await _answer(send, 403, sign_in_message("This came from another site's page, and was not done."))
        elif path.startswith(_SOCKET):
            await _answer(send, 400, sign_in_message("Only a web socket is spoken here."))
        elif path == "/sign-in":
            await self._sign_in(scope, receive, send, session)
        elif path == "/sign-out" and method == "POST":
            self._sessions.end(session or AT_THE_MACHINE)
            gone = (b"set-cookie", session_cookie("", self._secure).encode())
            await _answer(send, 303, b"", [(b"location", b"/sign-in"), gone])
        elif path.startswith(_OWN) and not path.startswith(_CLIENT):
            await self._pages(scope, receive, _guarded(send, security_headers()))
        elif session is None:
            await _to_sign_in(scope, send)
        elif path.startswith(_CLIENT) and not self._own_page(scope, session):
            await _answer(send, 404, sign_in_message("There is no such page of yours."))
        else:
            scope[KEY] = self._begin(session)
            await self._pages(_uncompressed(scope), receive, _page(send, new_number()))

    def _own_page(self, scope: Any, session: str) -> bool:
        """Whether a page's socket or file comes from who opened that page, not just from who knows its id."""
        from nicegui import Client

        if scope["path"].startswith(_CLIENT):
            id = scope["path"].removeprefix(_CLIENT).partition("/")[0]
        else:
            id = parse_qs(scope["query_string"].decode("latin-1")).get("client_id", [""])[0]
        client = Client.instances.get(id)
        return client is None or same_session(client.request.scope, session)

    async def _sign_in(self, scope: Any, receive: Any, send: Any, session: str | None) -> None:
        then = where_to(scope)
        if session == AT_THE_MACHINE:
            await _answer(send, 303, b"", [(b"location", then.encode())])
        elif scope["method"] == "POST":
            await self._try(scope, receive, send, then)
        else:
            await _answer(send, 200, sign_in_form(then))

    async def _try(self, scope: Any, receive: Any, send: Any, then: str) -> None:
        """A token was typed."""
        wait = self._tries.take(scope["client"][0] if scope["client"] else "", time.monotonic())
        if wait:
            told = f"Too many tries; wait {retry_after(wait)} s."
            await _answer(send, 429, sign_in_form(then, told), [(b"retry-after", retry_after(wait).encode())])
            return
        typed = parse_qs((await _body(receive)).decode("utf-8", "replace")).get("token", [""])[0].strip()
        try:
            name = self._sessions.begin(typed)
        except TrimtabError:
            told = "This token opens nothing: it is wrong, expired or revoked."
            await _answer(send, 401, sign_in_form(then, told))
            return
        cookie = (b"set-cookie", session_cookie(name, self._secure).encode())
        await _answer(send, 303, b"", [(b"location", then.encode()), cookie])


def where_to(scope: Any) -> str:
    """The page that was asked for before signing in: one of ours, else the first."""
    told = parse_qs(scope["query_string"].decode("latin-1")).get("then", ["/"])[0]
    local = told.startswith("/") and not told.startswith(("//", "/\\")) and told.isprintable()
    return quote(told, safe="/?=&-_.") if local else "/"


async def _to_sign_in(scope: Any, send: Any) -> None:
    then = quote(unquote(scope["path"]), safe="")
    await _answer(send, 303, b"", [(b"location", f"/sign-in?then={then}".encode())])


async def _answer(send: Any, status: int, body: bytes, more: Headers | None = None) -> None:
    headers = [_HTML, (b"cache-control", b"no-store"), *security_headers(), *(more or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _body(receive: Any) -> bytes:
    """A form's; what is longer than any token is cut off."""
    body = b""
    while len(body) <= _LONGEST_FORM:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return body[:_LONGEST_FORM]


def _uncompressed(scope: Any) -> Any:
    """The same request for an answer that can be read here."""
    return {**scope, "headers": [each for each in scope["headers"] if each[0] != b"accept-encoding"]}


def _guarded(send: Any, headers: Headers) -> Any:
    """The same, with what every answer says."""

    async def guarded(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return guarded


def _page(send: Any, number: str) -> Any:
    """Sends pages with the number in each of their scripts, and files as they are."""
    start: Any = None
    parts: list[bytes] = []

    async def page(message: Any) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            headers = [*message["headers"], *security_headers(number)]
            start = {**message, "headers": headers}
            if not _is_html(headers):
                await send(start)
        elif message["type"] != "http.response.body" or not _is_html(start["headers"]):
            await send(message)
        else:
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                body = numbered(b"".join(parts), number)
                kept = [(name, value) for name, value in start["headers"] if name != b"content-length"]
                await send({**start, "headers": [*kept, (b"content-length", str(len(body)).encode())]})
                await send({"type": "http.response.body", "body": body})

    return page


def _is_html(headers: Headers) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/html") for name, value in headers)
