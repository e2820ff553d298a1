"""JSON as its grammar has it, where Python's own goes beyond."""

import re

from trimtab.core.errors import BadInputError

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|NaN|Infinity')


def within_grammar(text: str, nan: str | None = None) -> str:
    """What `json` wrote, with 1e999 for infinity, as every reader of doubles takes it, and `nan` for NaN.

    Without a `nan`, NaN is refused.
    """

    def written(token: re.Match[str]) -> str:
        if token[0] == "Infinity":
            return "1e999"
        if token[0] != "NaN":
            return token[0]
        if nan is None:
            raise BadInputError("a value is NaN, which cannot be stored; leave it out or give the number")
        return nan

    return _TOKEN.sub(written, text)
