"""A pipeline as its file describes it: stages, their commands, order and resource requests."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, did_you_mean


@dataclass(frozen=True, slots=True)
class Source:
    """A pipeline's file; commands run in `folder`, files between a cluster's stages are in `artifacts`.

    `parameters` are the user's values for the pipeline's parameters.
    """

    path: Path
    documents: tuple[Any, ...]
    folder: Path
    artifacts: Path
    parameters: Mapping[str, str] = field(default_factory=dict)


def mapping(value: Any, *keys: str) -> Mapping[str, Any]:
    """The mapping at `keys` inside a value; empty if there is none."""
    inner = _inside(value, keys)
    return inner if isinstance(inner, Mapping) else {}


def listed(value: Any, *keys: str) -> list[Any]:
    """The list at `keys` inside a value; empty if there is none."""
    inner = _inside(value, keys)
    return inner if isinstance(inner, list) else []


def _inside(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


Place = tuple[str | int, ...]
"""A place in a file: the document's number, then keys and indices from its top."""


@dataclass(frozen=True, slots=True)
class Content:
    """A part of a word: the text of a file that an earlier stage writes."""

    path: Path


Word = tuple[str | Content, ...]
"""One word of a command, in parts."""


@dataclass(frozen=True, slots=True)
class CurrentRequest:
    """Resources that a stage requests in the file: cores, bytes, accelerators; None if it requests none.

    A limit without a request counts as the request, as in Kubernetes.
    """

    cpu: float | None = None
    memory: float | None = None
    cpu_limit: float | None = None
    accelerator: str = ""
    accelerators: int = 0


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """A stage's new request: cores, bytes (also the limit), accelerators (None: unchanged)."""

    cpu: float
    memory: float
    accelerator: str = ""
    accelerators: int | None = None


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """One stage of a pipeline. `place` is the part of the file that its resources are written into.

    `after` are the stages it waits for, `inputs` and `outputs` files. `obstacle` says why its command cannot
    run on this machine; empty if it can.
    """

    name: str
    command: tuple[Word, ...]
    place: Place
    folder: Path
    after: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[Path, ...] = ()
    outputs: tuple[Path, ...] = ()
    current: CurrentRequest = CurrentRequest()
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline and its file. `stages` are in topological order; `format` names the dialect."""

    name: str
    path: Path
    format: str
    stages: tuple[PipelineStage, ...]
    text: str
    documents: tuple[Any, ...]

    def stage(self, name: str) -> PipelineStage:
        """The stage of that name; refuses an unknown one."""
        names = [stage.name for stage in self.stages]
        if name not in names:
            raise BadInputError(
                f'{self.path} has no stage "{name:.60}"{did_you_mean(name, names)};'
                f" its stages are {', '.join(names)}"
            )
        return self.stages[names.index(name)]


def ordered(path: Path, stages: Sequence[PipelineStage]) -> tuple[PipelineStage, ...]:
    """The stages in topological order, ties as in the file; refuses cycles and unknown names."""
    if not stages:
        raise BadInputError(f"{path} has no stages; there is nothing to size")
    named: dict[str, PipelineStage] = {}
    for stage in stages:
        if stage.name in named:
            raise BadInputError(f"{path}: two stages are called {stage.name}; every stage needs its own name")
        named[stage.name] = stage
    for stage in stages:
        for other in stage.after:
            if other not in named:
                raise BadInputError(
                    f'{path}: stage "{stage.name}" waits for "{other}", which is not a stage'
                    f"{did_you_mean(other, named)}; the stages are {', '.join(named)}"
                )
    sorter = TopologicalSorter({stage.name: stage.after for stage in stages})
    try:
        sorter.prepare()
    except CycleError as error:
        circle = " → ".join(error.args[1])
        raise BadInputError(f"{path}: stages wait for one another in a circle: {circle}") from None
    position = {name: number for number, name in enumerate(named)}
    order: list[PipelineStage] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=position.__getitem__)
        order += [named[name] for name in ready]
        sorter.done(*ready)
    return tuple(order)


DEEPEST = 50  # graphs within graphs
LOOP = "it is run once per item of a list, which only the cluster knows"
CONDITION = "it is run under a condition, which only the cluster can check"
NO_COMMAND = "its command is the image's own"


class UnresolvedError(Exception):
    """A placeholder has no value on this machine; the message is part of a sentence."""


def environment(container: Mapping[str, Any]) -> dict[str, str]:
    """A container's variables; "" for values that the cluster takes from elsewhere."""
    variables = map(mapping, listed(container, "env"))
    return {str(entry["name"]): str(entry.get("value", "")) for entry in variables if "name" in entry}


def fill_placeholders(text: str, placeholder: re.Pattern[str], value: Callable[[str], Word]) -> Word:
    """A text with each placeholder replaced by the value of its first group."""
    parts: list[Any] = []
    end = 0
    for match in placeholder.finditer(text):
        parts += [text[end : match.start()], *value(match[1].strip())]
        end = match.end()
    parts.append(text[end:])
    return joined(parts)


def joined(parts: Sequence[Any]) -> Word:
    """The parts as a word, with neighbouring texts joined."""
    word: list[Any] = []
    for part in parts:
        if isinstance(part, str) and word and isinstance(word[-1], str):
            word[-1] += part
        elif part != "" or not word:
            word.append(part)
    return tuple(word)


def refuse_unknown_parameters(source: Source, known: Sequence[str]) -> None:
    """Refuse a parameter of the user that the pipeline does not have."""
    unknown = next((name for name in source.parameters if name not in known), None)
    if unknown is not None:
        names = ", ".join(known) or "none"
        raise BadInputError(f'{source.path} has no parameter "{unknown}"; its parameters are {names}')
