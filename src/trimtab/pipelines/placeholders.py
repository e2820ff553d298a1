"""Kubeflow's placeholders in a command, such as {{$.inputs.parameters['n']}}, made words that run here."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.pipelines import containers
from trimtab.pipelines.containers import UnresolvedError, joined
from trimtab.pipelines.pipeline import Word

_PLACEHOLDER = re.compile(r"\{\{\$(.*?)\}\}", re.DOTALL)
_NAMED = re.compile(r"\.(inputs|outputs)\.(parameters|artifacts)\[['\"](.+?)['\"]\](?:\.(\w+))?")


@dataclass(frozen=True, slots=True)
class Values:
    """What a task's placeholders stand for. None where only the cluster knows."""

    task: str
    pipeline: str
    parameters: Mapping[str, Word | None]
    artifacts: Mapping[str, Path | None]
    output_artifacts: Mapping[str, Path]
    output_parameters: Mapping[str, Path]


def resolved(told: Sequence[Any], values: Values) -> tuple[Word, ...]:
    """The words of a command or of its arguments; optional ones may become none or several."""
    return tuple(word for text in told for word in _words(text, values))


def filled(text: str, values: Values) -> Word:
    """One text with its placeholders filled in."""
    return containers.filled(text, _PLACEHOLDER, lambda what: _value(what, values))


def _words(told: Any, values: Values) -> list[Word]:
    structure = _structure(told) if isinstance(told, str) else told
    if isinstance(structure, Mapping):
        if "Concat" in structure:
            pieces = [part for each in structure["Concat"] for word in _words(each, values) for part in word]
            return [joined(pieces)]
        if "IfPresent" in structure:
            return _optional(structure["IfPresent"], values)
        raise UnresolvedError("its command has a part that only Kubeflow can put together")
    if isinstance(structure, list):
        return [word for each in structure for word in _words(each, values)]
    return [filled(str(told), values)]


def _structure(text: str) -> Any:
    """The parsed form of a compiled Concat or IfPresent; None for any other text."""
    if not text.startswith(('{"Concat"', '{"IfPresent"')):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _optional(told: Mapping[str, Any], values: Values) -> list[Word]:
    name = told.get("InputName")
    present = name in values.parameters or name in values.artifacts
    return _words(told.get("Then" if present else "Else") or [], values)


def _value(what: str, values: Values) -> Word:
    if what == "":
        raise UnresolvedError("its command needs Kubeflow's own executor, the package kfp, inside its image")
    simple = {".pipeline_task_name": values.task, ".pipeline_job_name": values.pipeline}
    if what in simple:
        return (simple[what],)
    found = _NAMED.fullmatch(what)
    if found is None:
        raise UnresolvedError(f"its command uses {{{{${what:.60}}}}}, which only the cluster knows")
    side, kind, name, field = found.groups()
    wanted = (side, kind, field)
    value: Word | Path | None = None
    if wanted == ("inputs", "parameters", None):
        value = values.parameters.get(name)
    elif wanted in (("inputs", "artifacts", "path"), ("inputs", "artifacts", "uri")):
        value = values.artifacts.get(name)
    elif wanted in (("outputs", "artifacts", "path"), ("outputs", "artifacts", "uri")):
        value = values.output_artifacts.get(name)
    elif wanted == ("outputs", "parameters", "output_file"):
        value = values.output_parameters.get(name)
    if value is None:
        raise UnresolvedError(f"{side.removesuffix('s')} {name} has no value outside the cluster")
    return value if isinstance(value, tuple) else (str(value),)
