"""Our own pipeline file: a list of stages with commands. Described in docs/pipelines.md."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, one_line, quoted, refuse_unknown
from trimtab.pipelines.accelerators import parse_accelerators
from trimtab.pipelines.pipeline import Asked, Request, Stage
from trimtab.pipelines.quantity import format_cpu, format_memory, parse_quantity
from trimtab.pipelines.source import Source

_STAGE = ("name", "command", "after", "inputs", "outputs", "environment", "resources", "accelerator")
_EXAMPLE = "{name: train, command: python train.py, after: [load]}"


def is_own(document: Mapping[str, Any]) -> bool:
    """Whether it is a file of ours."""
    return "stages" in document


def read_own(source: Source) -> tuple[str, list[Stage]]:
    """The pipeline's name and its stages."""
    document = source.documents[0]
    where = str(source.path)
    refuse_unknown(where, document, ("name", "stages"))
    told = document["stages"]
    if not isinstance(told, list) or not told:
        raise BadInputError(f"{where} has no stages; stages should be a list such as [{_EXAMPLE}]")
    stages = [_stage(source, number, each) for number, each in enumerate(told)]
    makers = {path: stage.name for stage in stages for path in stage.outputs}
    name = document.get("name")
    return str(name) if name is not None else source.path.stem, [_behind(stage, makers) for stage in stages]


def own_changes(stage: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """What changes in a stage of the file."""
    asked = {"cpu": format_cpu(request.cpu), "memory": format_memory(request.memory)}
    changes: dict[str, Any] = {"resources": {**(stage.get("resources") or {}), **asked}}
    if request.accelerators is not None:
        named = f"{request.accelerator}:{request.accelerators}"
        changes["accelerator"] = named if request.accelerators else None
    return changes


def _stage(source: Source, number: int, told: Any) -> Stage:
    where = f"{source.path}: stages[{number + 1}]"
    if not isinstance(told, Mapping):
        raise BadInputError(f"{where} is {one_line(quoted(told))}; it should be a stage such as {_EXAMPLE}")
    refuse_unknown(where, told, _STAGE)
    name = told.get("name")
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise BadInputError(
            f"{where}.name is {one_line(quoted(name))}; every stage needs a name such as train"
        )
    resources = told.get("resources") or {}
    if not isinstance(resources, Mapping):
        raise BadInputError(f"{where}.resources should be cpu and memory, such as {{cpu: 2, memory: 4Gi}}")
    refuse_unknown(f"{where}.resources", resources, ("cpu", "memory"))
    asked = told.get("accelerator")
    kind, count = parse_accelerators(f"{where}.accelerator", asked) if asked is not None else ("", 0)
    return Stage(
        name=name,
        command=tuple((word,) for word in _words(where, told.get("command"))),
        place=(0, "stages", number),
        folder=source.folder,
        after=_names(where, "after", told),
        environment=_environment(where, told.get("environment")),
        inputs=tuple(source.folder / path for path in _names(where, "inputs", told)),
        outputs=tuple(source.folder / path for path in _names(where, "outputs", told)),
        asked=Asked(
            cpu=parse_quantity(f"{where}.resources.cpu", resources.get("cpu")),
            memory=parse_quantity(f"{where}.resources.memory", resources.get("memory")),
            accelerator=kind,
            accelerators=count,
        ),
    )


def _behind(stage: Stage, makers: Mapping[Path, str]) -> Stage:
    """The stage, waiting also for those that make its inputs."""
    made = [makers[path] for path in stage.inputs if path in makers]
    return replace(stage, after=tuple(dict.fromkeys((*stage.after, *made))))


def _words(where: str, told: Any) -> tuple[str, ...]:
    """A list of words as it is; a line goes to the shell."""
    if isinstance(told, str) and told.strip() and "\0" not in told:
        return ("sh", "-c", told)
    words = [str(word) for word in told] if isinstance(told, list) else []
    if not words or not words[0] or any("\0" in word for word in words):
        raise BadInputError(
            f"{where}.command is {one_line(quoted(told))}; it should be a line such as python train.py, "
            "or a list of words"
        )
    return tuple(words)


def _names(where: str, field: str, told: Mapping[str, Any]) -> tuple[str, ...]:
    value = told.get(field)
    names = [value] if isinstance(value, str) else value if value is not None else []
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise BadInputError(
            f"{where}.{field} is {one_line(quoted(value))}; it should be a list such as [a, b]"
        )
    return tuple(names)


def _environment(where: str, told: Any) -> dict[str, str]:
    if told is None:
        return {}
    if not isinstance(told, Mapping) or any(isinstance(value, list | dict) for value in told.values()):
        raise BadInputError(f"{where}.environment should be names with a text each, such as {{SEED: '1'}}")
    return {str(name): "" if value is None else str(value) for name, value in told.items()}
