"""What both of Kubeflow's compiled forms have in common: containers, and what only a cluster knows."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trimtab.core import BadInputError
from trimtab.pipelines.pipeline import Word
from trimtab.pipelines.source import Source, listed, mapping

DEEPEST = 50  # graphs within graphs
LOOP = "it is run once per item of a list, which only the cluster knows"
CONDITION = "it is run under a condition, which only the cluster can check"
NO_COMMAND = "its command is the image's own"


class UnresolvedError(Exception):
    """A placeholder has no value on this machine; the message says why, as part of a sentence."""


def environment(container: Mapping[str, Any]) -> dict[str, str]:
    """Its variables; empty where the cluster would take the value from elsewhere."""
    told = map(mapping, listed(container.get("env")))
    return {str(each["name"]): str(each.get("value", "")) for each in told if "name" in each}


def filled(text: str, placeholder: re.Pattern[str], value: Callable[[str], Word]) -> Word:
    """A text with the value of what each placeholder's first group names in its place."""
    parts: list[Any] = []
    end = 0
    for found in placeholder.finditer(text):
        parts += [text[end : found.start()], *value(found[1].strip())]
        end = found.end()
    parts.append(text[end:])
    return joined(parts)


def joined(parts: Sequence[Any]) -> Word:
    """Neighbouring texts as one."""
    word: list[Any] = []
    for part in parts:
        if isinstance(part, str) and word and isinstance(word[-1], str):
            word[-1] += part
        elif part != "" or not word:
            word.append(part)
    return tuple(word)


def refuse_unknown_parameters(source: Source, known: Sequence[str]) -> None:
    """A parameter that the user gave and the pipeline does not have is a mistake."""
    unknown = next((name for name in source.parameters if name not in known), None)
    if unknown is not None:
        names = ", ".join(known) or "none"
        raise BadInputError(f'{source.path} has no parameter "{unknown}"; its parameters are {names}')
