"""JSON that keeps every float but NaN, within the grammar that PostgreSQL checks."""

import json
import math
from typing import Any

from trimtab.core import within_grammar

_encode = json.JSONEncoder(allow_nan=False).encode


def dumps(value: Any) -> str:
    """`value` as JSON; infinity is written 1e999."""
    try:
        return _encode(value)
    except ValueError:
        return within_grammar(json.dumps(value))


loads = json.loads

# Pages put a few columns beside JSON that is there already: to encode these one by one costs a tenth of it.
string = json.encoder.encode_basestring_ascii
"""A text as JSON."""


def number(value: float) -> str:
    """A number as JSON."""
    return repr(value) if math.isfinite(value) else dumps(value)
