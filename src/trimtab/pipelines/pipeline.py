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
    """`folder` is where commands run, `artifacts` where files between stages of a cluster's pipeline go.

    `parameters` are the pipeline's own, as the user gave them.
    """

    path: Path
    documents: tuple[Any, ...]
    folder: Path
    artifacts: Path
    parameters: Mapping[str, str] = field(default_factory=dict)


def mapping(value: Any) -> Mapping[str, Any]:
    """A value of a file as names and values; none where it is something else."""
    return value if isinstance(value, Mapping) else {}


def listed(value: Any) -> list[Any]:
    """A value of a file as a list; empty where it is something else."""
    return value if isinstance(value, list) else []


Place = tuple[str | int, ...]
"""Where something is in a file: the document's number, then names and indices from its top."""


@dataclass(frozen=True, slots=True)
class Content:
    """The text of a file that an earlier stage writes: a part of a word that is known once that has run."""

    path: Path


Word = tuple[str | Content, ...]
"""One word of a command, in parts."""


@dataclass(frozen=True, slots=True)
class CurrentRequest:
    """Resources that a stage requests in the file: cores, bytes, accelerators. None where it requests none.

    A limit without a request counts as the request, as it does in Kubernetes.
    """

    cpu: float | None = None
    memory: float | None = None
    cpu_limit: float | None = None
    accelerator: str = ""
    accelerators: int = 0


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """Resources that a stage should request: cores, bytes (also the limit), accelerators (None: as now)."""

    cpu: float
    memory: float
    accelerator: str = ""
    accelerators: int | None = None


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """One step of a pipeline. `place` is the part of the file that its resources are written into.

    `after` are the stages it waits for, `inputs` and `outputs` files. `obstacle` says why its command cannot
    be run on this machine; it is empty where it can.
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
    """A file that was read. `stages` are in an order in which they can run; `format` names the dialect."""

    name: str
    path: Path
    format: str
    stages: tuple[PipelineStage, ...]
    text: str
    documents: tuple[Any, ...]

    def stage(self, name: str) -> PipelineStage:
        """The stage called so."""
        names = [stage.name for stage in self.stages]
        if name not in names:
            raise BadInputError(
                f'{self.path} has no stage "{name:.60}"{did_you_mean(name, names)};'
                f" its stages are {', '.join(names)}"
            )
        return self.stages[names.index(name)]


def ordered(path: Path, stages: Sequence[PipelineStage]) -> tuple[PipelineStage, ...]:
    """The stages, each behind all it waits for, otherwise as in the file."""
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
                    f'{path}: stage "{stage.name}" waits for "{other}", which is no stage'
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
    """A placeholder has no value on this machine; the message says why, as part of a sentence."""


def environment(container: Mapping[str, Any]) -> dict[str, str]:
    """Its variables; empty where the cluster would take the value from elsewhere."""
    variables = map(mapping, listed(container.get("env")))
    return {str(each["name"]): str(each.get("value", "")) for each in variables if "name" in each}


def fill_placeholders(text: str, placeholder: re.Pattern[str], value: Callable[[str], Word]) -> Word:
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
