"""Changes values in the text of a YAML or JSON file and keeps its comments, order and quotes (ruamel.yaml).

The edited text is parsed again and compared with the intended documents. Where they differ, because the file
uses aliases or merge keys around the changed part, the file is written anew and its comments are lost.
"""

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from trimtab.core import BadInputError
from trimtab.pipelines.pipeline import Place

_MOST_ITEMS = 200_000
_UNLIMITED = 1_000_000  # columns: no line is folded


@dataclass(frozen=True, slots=True)
class FieldChange:
    """Sets `key` of the mapping at `place` to `value`; None removes it."""

    place: Place
    key: str
    value: Any


def load(text: str) -> tuple[Any, ...]:
    """The documents of a YAML text, with aliases expanded."""
    return tuple(_unshared(document, set(), [0]) for document in yaml.safe_load_all(text))


def changed(text: str, changes: Sequence[FieldChange]) -> tuple[str, bool]:
    """The text with the changes made, and whether comments and layout are preserved."""
    intended = load(text)
    for change in changes:
        holder = at(intended, change.place)
        if change.value is None:
            holder.pop(change.key, None)
        else:
            holder[change.key] = change.value
    from ruamel.yaml.error import YAMLError

    try:
        edited = _json(text, intended) or _round_trip(text, changes)
        if load(edited) == intended:
            return edited, True
    except (YAMLError, yaml.YAMLError, ValueError, NotImplementedError):
        pass  # ruamel.yaml refuses files that PyYAML reads, such as those with a key twice
    return yaml.safe_dump_all(intended, sort_keys=False, allow_unicode=True, width=_UNLIMITED), False


def at(documents: Sequence[Any], place: Place) -> Any:
    """The value at a place."""
    value: Any = documents
    for step in place:
        value = value[step]
    return value


def _unshared(value: Any, above: set[int], count: list[int]) -> Any:
    """A copy without shared objects; refuses too many items, because few aliases can stand for billions."""
    count[0] += 1
    if count[0] > _MOST_ITEMS:
        raise BadInputError(f"its aliases stand for more than {_MOST_ITEMS:,} items; write them out")
    if not isinstance(value, dict | list):
        return value
    if id(value) in above:
        raise BadInputError("an alias in it stands for something that contains it; write it out")
    inside = above | {id(value)}
    if isinstance(value, dict):
        return {key: _unshared(item, inside, count) for key, item in value.items()}
    return [_unshared(item, inside, count) for item in value]


def _json(text: str, intended: tuple[Any, ...]) -> str:
    """The changed document as JSON, indented as before; empty if the text is not valid JSON."""
    try:
        json.loads(text)
    except ValueError:
        return ""
    indent = re.search(r"\n( +)\S", text)
    written = json.dumps(intended[0], indent=len(indent[1]) if indent else None, ensure_ascii=False)
    return written + "\n" * text.endswith("\n")


def _round_trip(text: str, changes: Sequence[FieldChange]) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.util import load_yaml_guess_indent

    first = text.split("\n---")[0]
    _, indent, offset = load_yaml_guess_indent(first)
    editor = YAML()
    editor.preserve_quotes = True
    editor.width = _UNLIMITED
    editor.explicit_start = text.startswith("---")
    mapping = (indent if offset is None else offset) or 2
    editor.indent(mapping=mapping, sequence=indent or 2, offset=offset or 0)
    documents = list(editor.load_all(text))
    for change in changes:
        holder = at(documents, change.place)
        if change.value is not None:
            _put(holder, change.key, change.value)
        elif change.key in holder:
            _remove(holder, change.key)
    output = io.StringIO()
    editor.dump_all(documents, output)
    edited = output.getvalue()
    return edited.replace("\n", "\r\n") if "\r\n" in text else edited


def _put(holder: Any, key: Any, value: Any) -> None:
    """Set a value; in existing mappings only differing keys, so that their comments stay."""
    old = holder.get(key)
    if isinstance(value, dict) and isinstance(old, dict) and old:
        for removed in [name for name in old if name not in value]:
            _remove(old, removed)
        for name, inner in value.items():
            _put(old, name, inner)
    elif key in holder:
        if old != value:
            holder[key] = _commented(value)
    else:
        below = _take_comment_below(holder, list(holder)[-1]) if holder else ""
        holder[key] = _commented(value)
        _give_comment_below(holder, key, below)


def _remove(holder: Any, key: Any) -> None:
    """Delete a key and its own comment; comments below it move below the key before."""
    keys = list(holder)
    below = _take_comment_below(holder, key)
    del holder[key]
    if keys.index(key):
        _give_comment_below(holder, keys[keys.index(key) - 1], below)


# ruamel.yaml keeps blank lines and comments below a value with the last leaf of that value, in one token with
# the comment on the leaf's own line: `ca.items[key][2]` in a mapping, `ca.items[index][0]` in a sequence.


def _last_leaf(holder: Any, key: Any) -> tuple[Any, Any, int]:
    """The innermost block collection that a value ends in, the last key in it, and its slot for comments."""
    value: Any = holder[key]
    while hasattr(value, "fa") and value and not value.fa.flow_style():
        holder, key = value, list(value)[-1] if isinstance(value, dict) else len(value) - 1
        value = holder[key]
    return holder, key, 2 if isinstance(holder, dict) else 0


def _take_comment_below(holder: Any, key: Any) -> str:
    if holder.fa.flow_style():
        return ""
    holder, key, slot = _last_leaf(holder, key)
    comments = holder.ca.items.get(key)
    if not comments or comments[slot] is None:
        return ""
    own, newline, below = comments[slot].value.partition("\n")
    if own:
        comments[slot].value = own + newline
    else:
        comments[slot] = None
    return str(below)


def _give_comment_below(holder: Any, key: Any, below: str) -> None:
    if not below:
        return
    from ruamel.yaml.error import CommentMark
    from ruamel.yaml.tokens import CommentToken

    holder, key, slot = _last_leaf(holder, key)
    comments = holder.ca.items.setdefault(key, [None, None, None, None])
    if comments[slot] is None:
        comments[slot] = CommentToken(f"\n{below}", CommentMark(0), None)
    else:
        comments[slot].value += below


def _commented(value: Any) -> Any:
    """A plain value in ruamel.yaml's types, which can hold comments."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    if isinstance(value, dict):
        return CommentedMap((key, _commented(item)) for key, item in value.items())
    return CommentedSeq(_commented(item) for item in value) if isinstance(value, list) else value
