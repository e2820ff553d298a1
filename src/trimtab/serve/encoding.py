"""JSON for the wire: within its grammar, and every number as it was."""

import json
from typing import Any

from trimtab.core import to_plain, within_grammar

_strict = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=sorted).encode
_lax = json.JSONEncoder(separators=(",", ":"), default=sorted).encode


def encoded(value: Any) -> bytes:
    """As JSON; infinity is written 1e999, NaN null."""
    plain = to_plain(value)
    try:
        return _strict(plain).encode()
    except ValueError:
        return within_grammar(_lax(plain), nan="null").encode()
