"""A pipeline as its file tells it: stages, what each waits for, runs and asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, did_you_mean

Place = tuple[str | int, ...]
"""Where something is in a file: the document's number, then names and indices from its top."""


@dataclass(frozen=True, slots=True)
class Content:
    """The text of a file that an earlier stage writes: a part of a word that is known once that has run."""

    path: Path


Word = tuple[str | Content, ...]
"""One word of a command, in parts."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a stage asks a cluster for: cores, bytes, accelerators. None where the file says nothing.

    A limit without a request counts as the request, as it does in Kubernetes.
    """

    cpu: float | None = None
    memory: float | None = None
    cpu_limit: float | None = None
    accelerator: str = ""
    accelerators: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """What a stage shall ask for: cores, bytes (as request and limit), accelerators (None: as they are)."""

    cpu: float
    memory: float
    accelerator: str = ""
    accelerators: int | None = None


@dataclass(frozen=True, slots=True)
class Stage:
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
    asked: Asked = Asked()
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A file that was read. `stages` are in an order in which they can run; `format` names the dialect."""

    name: str
    path: Path
    format: str
    stages: tuple[Stage, ...]
    text: str
    documents: tuple[Any, ...]

    def stage(self, name: str) -> Stage:
        """The stage called so."""
        names = [stage.name for stage in self.stages]
        if name not in names:
            raise BadInputError(
                f'{self.path} has no stage "{name:.60}"{did_you_mean(name, names)};'
                f" its stages are {', '.join(names)}"
            )
        return self.stages[names.index(name)]


def ordered(path: Path, stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages, each behind all it waits for, otherwise as in the file."""
    if not stages:
        raise BadInputError(f"{path} has no stages; there is nothing to size")
    named: dict[str, Stage] = {}
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
    order: list[Stage] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=position.__getitem__)
        order += [named[name] for name in ready]
        sorter.done(*ready)
    return tuple(order)
