"""Admits requests to the dashboard: signed-in sessions, no page of another site, content security policy.

NiceGUI compiles its templates in the browser and starts with inline scripts. So scripts need `unsafe-eval`,
but inline ones run only with a nonce that is new for every page: text written into a page never runs. Styles
are inline too, in attributes, which no nonce can cover. Nothing is loaded from another host.
"""

import secrets
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from trimtab.core import TrimtabError
from trimtab.serve.dashboard.sessions import (
    AT_THE_MACHINE,
    SignInSessions,
    session_cookie,
    sign_in_form,
    sign_in_message,
)
from trimtab.serve.dashboard.visit import KEY, Visit
from trimtab.serve.http.middleware import Buckets, is_here, names_this_machine, retry_after

Headers = list[tuple[bytes, bytes]]

_FIXED: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), usb=()"),
]


def security_headers(nonce: str = "") -> Headers:
    """Headers of every response; without a nonce, no script runs on it."""
    scripts = f"'self' 'unsafe-eval' 'nonce-{nonce}'" if nonce else "'none'"
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        f"font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return [*_FIXED, (b"content-security-policy", policy.encode())]


def header(scope: Any, name: bytes) -> str:
    """The first header of a name in lower case; "" if there is none."""
    return next((value.decode("latin-1") for known, value in scope["headers"] if known == name), "")


def from_our_page(scope: Any) -> bool:
    """Whether a page of the dashboard sent the request, by its Origin header."""
    origin = header(scope, b"origin")
    return origin != "" and origin.partition("://")[2] == header(scope, b"host")


_OWN = ("/_nicegui", "/static/", "/favicon.ico")  # scripts and styles, equal for all
_SOCKET = "/_nicegui_ws/"
_CLIENT = "/_nicegui/client/"
_LONGEST_FORM = 4096
_HTML = (b"content-type", b"text/html; charset=utf-8")
_TRIES_PER_SECOND, _TRIES_AT_ONCE = 0.5, 10.0  # of one address, at signing in


class Door:
    """ASGI application in front of `pages`; `begin` makes the visit of a session."""

    def __init__(
        self,
        pages: Any,
        sessions: SignInSessions,
        begin: Callable[[str], Visit],
        secure: bool,
        hosts: frozenset[str],
    ) -> None:
        self._pages, self._sessions, self._begin = pages, sessions, begin
        self._secure, self._hosts = secure, hosts
        self._tries = Buckets(_TRIES_PER_SECOND, _TRIES_AT_ONCE)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            session = self._session(scope)
        except TrimtabError:
            if scope["type"] != "websocket":
                raise
            session = None  # the store cannot be used now; the page connects again
        if scope["type"] == "websocket":
            if session is None or not from_our_page(scope) or not self._own_page(scope, session):
                await send({"type": "websocket.close", "code": 1008})
                return
            scope[KEY] = self._begin(session)
            await self._pages(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send, session)

    def _session(self, scope: Any) -> str | None:
        """Name of the request's session, if it is still valid."""
        address = scope["client"][0] if scope["client"] else ""
        # Without a token, only requests from this machine under one of its names are admitted.
        host = header(scope, b"host")
        local = is_here(address) and (names_this_machine(host) or host in self._hosts)
        session = self._sessions.find(header(scope, b"cookie"), local)
        return session if self._sessions.open(session) else None

    async def _http(self, scope: Any, receive: Any, send: Any, session: str | None) -> None:
        path, method = scope["path"], scope["method"]
        if method not in ("GET", "HEAD") and not from_our_page(scope):
            await _answer(
                send, 403, sign_in_message("A page of another site sent this request; it was refused.")
            )
        elif path.startswith(_SOCKET):
            await _answer(send, 400, sign_in_message("This path is for web sockets."))
        elif path == "/sign-in":
            await self._sign_in(scope, receive, send, session)
        elif path == "/sign-out" and method == "POST":
            self._sessions.end(session or AT_THE_MACHINE)
            cookie = (b"set-cookie", session_cookie("", self._secure).encode())
            await _answer(send, 303, b"", [(b"location", b"/sign-in"), cookie])
        elif path.startswith(_OWN) and not path.startswith(_CLIENT):
            await self._pages(scope, receive, _with_headers(send, security_headers()))
        elif session is None:
            then = quote(unquote(scope["path"]), safe="")
            await _answer(send, 303, b"", [(b"location", f"/sign-in?then={then}".encode())])
        elif path.startswith(_CLIENT) and not self._own_page(scope, session):
            await _answer(send, 404, sign_in_message("There is no such page in this session."))
        else:
            scope[KEY] = self._begin(session)
            # Uncompressed, so that the nonce can be written into the page.
            scope["headers"] = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
            await self._pages(scope, receive, _with_nonce(send, secrets.token_urlsafe(18)))

    def _own_page(self, scope: Any, session: str) -> bool:
        """Whether the session that asks for a page's socket or file is the one that opened the page."""
        from nicegui import Client

        if scope["path"].startswith(_CLIENT):
            id = scope["path"].removeprefix(_CLIENT).partition("/")[0]
        else:
            id = parse_qs(scope["query_string"].decode("latin-1")).get("client_id", [""])[0]
        client = Client.instances.get(id)
        visit: Visit | None = None if client is None else client.request.scope.get(KEY)
        return client is None or (visit is not None and visit.session == session)

    async def _sign_in(self, scope: Any, receive: Any, send: Any, session: str | None) -> None:
        then = target_of(scope)
        if session == AT_THE_MACHINE:
            await _answer(send, 303, b"", [(b"location", then.encode())])
            return
        if scope["method"] != "POST":
            await _answer(send, 200, sign_in_form(then))
            return
        wait = self._tries.take(scope["client"][0] if scope["client"] else "", time.monotonic())
        if wait:
            after = retry_after(wait)
            form = sign_in_form(then, f"Too many tries; wait {after} s.")
            await _answer(send, 429, form, [(b"retry-after", after.encode())])
            return
        token = parse_qs((await _body(receive)).decode("utf-8", "replace")).get("token", [""])[0].strip()
        try:
            name = self._sessions.begin(token)
        except TrimtabError:
            await _answer(send, 401, sign_in_form(then, "This token is wrong, expired or revoked."))
            return
        cookie = (b"set-cookie", session_cookie(name, self._secure).encode())
        await _answer(send, 303, b"", [(b"location", then.encode()), cookie])


def target_of(scope: Any) -> str:
    """Path of the page to show after signing in: the one in the query if it is ours, else the first."""
    path = parse_qs(scope["query_string"].decode("latin-1")).get("then", ["/"])[0]
    local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return quote(path, safe="/?=&-_.") if local else "/"


async def _answer(send: Any, status: int, body: bytes, more: Headers | None = None) -> None:
    headers = [_HTML, (b"cache-control", b"no-store"), *security_headers(), *(more or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _body(receive: Any) -> bytes:
    """A form's body, cut off at a length that no token has."""
    body = b""
    while len(body) <= _LONGEST_FORM:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return body[:_LONGEST_FORM]


def _with_headers(send: Any, headers: Headers) -> Any:
    """`send` that adds headers to the response."""

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return sending


def _with_nonce(send: Any, nonce: str) -> Any:
    """`send` that adds the security headers, and the nonce to each script of a page.

    Data in a page have every < written as an entity, so a script tag is always the page's own.
    """
    start: Any = None
    parts: list[bytes] = []

    async def sending(message: Any) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            start = {**message, "headers": [*message["headers"], *security_headers(nonce)]}
            if not _is_html(start["headers"]):
                await send(start)
        elif message["type"] != "http.response.body" or not _is_html(start["headers"]):
            await send(message)
        else:
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                body = b"".join(parts).replace(b"<script", b'<script nonce="' + nonce.encode() + b'"')
                headers = [pair for pair in start["headers"] if pair[0] != b"content-length"]
                await send({**start, "headers": [*headers, (b"content-length", str(len(body)).encode())]})
                await send({"type": "http.response.body", "body": body})

    return sending


def _is_html(headers: Headers) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/html") for name, value in headers)
