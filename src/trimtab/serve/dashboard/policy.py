"""What a browser may do on a page of ours, and which requests are another site's doing.

NiceGUI compiles its templates in the browser and starts with inline scripts. So scripts need `unsafe-eval`,
but inline ones run only with a number that is new for every page: what is written into a page as text never
runs. Styles are inline too, in attributes, which no number can cover. Nothing comes from anywhere else.
"""

import secrets
from typing import Any

from trimtab.core import is_loopback

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
