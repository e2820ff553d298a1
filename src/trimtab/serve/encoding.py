"""JSON for the wire: within its grammar, and every number as it was."""

import json
import math
from collections.abc import Callable
from typing import Any

from trimtab.core import to_plain


def encoded(value: Any) -> bytes:
    """As JSON; infinity is written 1e999, which every reader of doubles takes for infinity."""
    plain = to_plain(value)
    try:
        return json.dumps(plain, allow_nan=False, separators=(",", ":"), default=sorted).encode()
    except ValueError:
        import orjson  # rarely needed; and without it a client is to say what it lacks in its own words

        return orjson.dumps(_within_grammar(plain, orjson.Fragment))


def _within_grammar(plain: Any, as_it_is: Callable[[bytes], Any]) -> Any:
    if isinstance(plain, dict):
        return {name: _within_grammar(value, as_it_is) for name, value in plain.items()}
    if isinstance(plain, list):
        return [_within_grammar(value, as_it_is) for value in plain]
    if isinstance(plain, float) and math.isinf(plain):
        return as_it_is(b"1e999" if plain > 0 else b"-1e999")
    return plain
