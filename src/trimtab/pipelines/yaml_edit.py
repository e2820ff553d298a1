"""Changes a few values in the text of a YAML file and leaves the rest, comments too, as it was.

The edited text is read again and must say what was meant. Where it does not, because the file uses aliases or
merges around the changed part, the whole is written anew and its comments are lost.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from trimtab.core import BadInputError
from trimtab.pipelines.pipeline import Place

_MOST_ITEMS = 200_000


@dataclass(frozen=True, slots=True)
class Change:
    """In the names and values at `place`, `key` becomes `value`; None takes it away."""

    place: Place
    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class _Cut:
    """Text from `start` to `end` that gives way to `text`."""

    start: int
    end: int
    text: str


class _NoPlaceError(Exception):
    """The text has no such place to edit."""


def load(text: str) -> tuple[Any, ...]:
    """The documents of a YAML text, nothing shared between their parts."""
    return tuple(_unshared(document, set(), [0]) for document in yaml.safe_load_all(text))


def changed(text: str, changes: Sequence[Change]) -> tuple[str, bool]:
    """The text with the changes made, and whether it is still the user's own text around them."""
    wanted = load(text)
    for change in changes:
        holder = at(wanted, change.place)
        if change.value is None:
            holder.pop(change.key, None)
        else:
            holder[change.key] = change.value
    try:
        edited = _edited(text, changes)
        if load(edited) == wanted:
            return edited, True
    except (_NoPlaceError, yaml.YAMLError):
        pass
    return yaml.safe_dump_all(wanted, sort_keys=False, allow_unicode=True, width=10_000), False


def at(documents: Sequence[Any], place: Place) -> Any:
    """What is at a place."""
    found: Any = documents
    for step in place:
        found = found[step]
    return found


def _unshared(value: Any, above: set[int], count: list[int]) -> Any:
    """A copy in which no part is the same object as another; few aliases can stand for billions of items."""
    count[0] += 1
    if count[0] > _MOST_ITEMS:
        raise BadInputError(f"its aliases stand for more than {_MOST_ITEMS:,} items; write them out")
    if not isinstance(value, dict | list):
        return value
    if id(value) in above:
        raise BadInputError("an alias in it stands for something that contains it; write it out")
    inside = above | {id(value)}
    if isinstance(value, dict):
        return {key: _unshared(each, inside, count) for key, each in value.items()}
    return [_unshared(each, inside, count) for each in value]


def _edited(text: str, changes: Sequence[Change]) -> str:
    nodes = list(yaml.compose_all(text, yaml.SafeLoader))
    newline = "\r\n" if "\r\n" in text else "\n"
    cuts = [_cut(text, _mapping(nodes, change.place), change, newline) for change in changes]
    # From the end on, so that marks stay true; of those for one spot the last goes in first, so order stays.
    for cut in sorted(cuts, key=lambda cut: cut.start)[::-1]:
        text = text[: cut.start] + cut.text + text[cut.end :]
    return text


def _mapping(nodes: Sequence[Any], place: Place) -> yaml.MappingNode:
    node: Any = nodes[int(place[0])]
    for step in place[1:]:
        if isinstance(node, yaml.SequenceNode):
            node = node.value[int(step)]
        else:
            pair = _pair(node, str(step))
            if pair is None:
                raise _NoPlaceError
            node = pair[1]
    if not isinstance(node, yaml.MappingNode) or not node.value:
        raise _NoPlaceError
    return node


def _pair(mapping: yaml.MappingNode, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    """The key's node and its value's; the last, where a key stands twice."""
    return next((pair for pair in reversed(mapping.value) if pair[0].value == key), None)


def _cut(text: str, mapping: yaml.MappingNode, change: Change, newline: str) -> _Cut:
    pair = _pair(mapping, change.key)
    if change.value is None:
        return _Cut(0, 0, "") if pair is None else _removal(text, mapping, pair)
    if mapping.flow_style:
        written = f"{json.dumps(change.key)}: {json.dumps(change.value)}"
        if pair is not None:
            return _Cut(pair[0].start_mark.index, _end(pair[1]), written)
        end = _end(mapping.value[-1][1])
        return _Cut(end, end, f", {written}")
    column = mapping.value[0][0].start_mark.column
    written = f"{newline}{' ' * column}".join(_lines(change, pair))
    if pair is not None:
        return _Cut(pair[0].start_mark.index, _end(pair[1]), written)
    last = _last_leaf(mapping)
    if isinstance(last, yaml.ScalarNode) and last.style in ("|", ">"):
        return _Cut(last.end_mark.index, last.end_mark.index, f"{' ' * column}{written}{newline}")
    line_end = text.find("\n", last.end_mark.index)
    end = len(text) if line_end < 0 else line_end - text[:line_end].endswith("\r")
    return _Cut(end, end, f"{newline}{' ' * column}{written}")


def _lines(change: Change, pair: tuple[yaml.Node, yaml.Node] | None) -> list[str]:
    """A key with its value: in braces where the old value was, else as a block."""
    if pair is not None and isinstance(pair[1], yaml.CollectionNode) and pair[1].flow_style:
        value = yaml.safe_dump(change.value, sort_keys=False, default_flow_style=True, width=10_000)
        return [f"{change.key}: {value.strip()}"]
    return yaml.safe_dump({change.key: change.value}, sort_keys=False, width=10_000).splitlines()


def _removal(text: str, mapping: yaml.MappingNode, pair: tuple[yaml.Node, yaml.Node]) -> _Cut:
    """Whole lines of a block; what is in braces, or alone, is left to writing anew."""
    if mapping.flow_style or pair is mapping.value[0]:
        raise _NoPlaceError
    line_start = text.rfind("\n", 0, pair[0].start_mark.index) + 1
    line_end = text.find("\n", _end(pair[1]))
    return _Cut(line_start, len(text) if line_end < 0 else line_end + 1, "")


def _end(node: yaml.Node) -> int:
    """Where the last character of a value is over; a block's own mark is at what follows its comments."""
    end: int = _last_leaf(node).end_mark.index
    return end


def _last_leaf(node: yaml.Node) -> yaml.Node:
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return node
