"""JSON that keeps every float but NaN, within the grammar that PostgreSQL checks."""

import json
import re
from typing import Any

from trimtab.core import BadInputError

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|NaN|Infinity')


def dumps(value: Any) -> str:
    """`value` as JSON; infinity is written 1e999, which every reader of doubles takes for infinity."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return _TOKEN.sub(_within_grammar, json.dumps(value))


loads = json.loads


def _within_grammar(token: re.Match[str]) -> str:
    if token[0] == "NaN":
        raise BadInputError("a value is NaN, which cannot be stored; leave it out or give the number")
    return "1e999" if token[0] == "Infinity" else token[0]
