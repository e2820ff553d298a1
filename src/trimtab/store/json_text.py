"""JSON that keeps every float but NaN, within the grammar that PostgreSQL checks."""

import json
import math
import re
from typing import Any

from trimtab.core import BadInputError

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|NaN|Infinity')


_encode = json.JSONEncoder(allow_nan=False).encode


def dumps(value: Any) -> str:
    """`value` as JSON; infinity is written 1e999, which every reader of doubles takes for infinity."""
    try:
        return _encode(value)
    except ValueError:
        return _TOKEN.sub(_within_grammar, json.dumps(value))


loads = json.loads

# Pages put a few columns beside JSON that is there already: to encode these one by one costs a tenth of it.
string = json.encoder.encode_basestring_ascii
"""A text as JSON."""


def number(value: float) -> str:
    """A number as JSON."""
    return repr(value) if math.isfinite(value) else dumps(value)


def _within_grammar(token: re.Match[str]) -> str:
    if token[0] == "NaN":
        raise BadInputError("a value is NaN, which cannot be stored; leave it out or give the number")
    return "1e999" if token[0] == "Infinity" else token[0]
