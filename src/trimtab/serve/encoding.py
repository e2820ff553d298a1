"""JSON for the wire: within its grammar, and every number as it was."""

import json
import math
from typing import Any

import orjson

from trimtab.core import to_plain


def encoded(value: Any) -> bytes:
    """As JSON; infinity is written 1e999, which every reader of doubles takes for infinity."""
    plain = to_plain(value)
    try:
        return json.dumps(plain, allow_nan=False, separators=(",", ":"), default=sorted).encode()
    except ValueError:
        return orjson.dumps(_within_grammar(plain))


def _within_grammar(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {name: _within_grammar(value) for name, value in plain.items()}
    if isinstance(plain, list):
        return [_within_grammar(value) for value in plain]
    if isinstance(plain, float) and math.isinf(plain):
        return orjson.Fragment(b"1e999" if plain > 0 else b"-1e999")
    return plain
