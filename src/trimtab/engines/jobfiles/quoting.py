"""Words for bash that survive whatever they hold, on one line of printable characters."""

import shlex

from trimtab.core import BadInputError


def quote(word: str) -> str:
    """`word` as bash reads it back.

    Control characters become $'…' escapes: YAML rewrites some of them and sbatch refuses carriage returns.
    The escapes are bytes, not code points, because bash decodes the latter only in a UTF-8 locale.
    """
    if "\0" in word:
        raise BadInputError("the command holds a NUL character, which no program can be given")
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(map(_escape, word)) + "'"


def _escape(character: str) -> str:
    if character in "\\'":
        return "\\" + character
    if character.isprintable():
        return character
    try:
        raw = character.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadInputError("the command holds half a character (a lone surrogate); write it again") from None
    return "".join(f"\\{byte:03o}" for byte in raw)
