"""A controller for many nodes, and their agents: packed messages over gRPC streams with mutual TLS."""

from trimtab.resize.link.certificates import Authority
from trimtab.resize.link.client import Line, LineError
from trimtab.resize.link.fleet import PATIENCE, Fleet
from trimtab.resize.link.joining import Membership, issue, join, join_server
from trimtab.resize.link.remote import REPORT_AFTER, RemoteAgent
from trimtab.resize.link.roster import Seat
from trimtab.resize.link.server import METHOD, Server
from trimtab.resize.link.serving import LISTEN, Serving, new_token, serve
from trimtab.resize.link.token import LIFETIME, Token, Tokens
from trimtab.resize.link.wire import (
    LIMIT,
    ROW,
    Ask,
    Confirm,
    Hello,
    Join,
    Orders,
    Post,
    Relief,
    Report,
    Welcome,
    WireError,
    limits,
)

__all__ = [
    "LIFETIME",
    "LIMIT",
    "LISTEN",
    "METHOD",
    "PATIENCE",
    "REPORT_AFTER",
    "ROW",
    "Ask",
    "Authority",
    "Confirm",
    "Fleet",
    "Hello",
    "Join",
    "Line",
    "LineError",
    "Membership",
    "Orders",
    "Post",
    "Relief",
    "RemoteAgent",
    "Report",
    "Seat",
    "Server",
    "Serving",
    "Token",
    "Tokens",
    "Welcome",
    "WireError",
    "issue",
    "join",
    "join_server",
    "limits",
    "new_token",
    "serve",
]
