"""Reads a pipeline's file in any of its dialects, and writes new requests into its text.

The dialects are the pipeline file of docs/guide/pipelines.md (a list of stages with commands), compiled
Kubeflow pipelines and Argo Workflows.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from trimtab.core import BadInputError, NotFoundError, StrictModel, home, one_line, validate
from trimtab.pipelines.argo import argo_changes, is_argo, read_argo
from trimtab.pipelines.editing import FieldChange, at, changed, load
from trimtab.pipelines.kubeflow import is_kubeflow, kubeflow_changes, read_kubeflow
from trimtab.pipelines.pipeline import (
    CurrentRequest,
    Pipeline,
    PipelineStage,
    ResourceRequest,
    Source,
    ordered,
)
from trimtab.pipelines.quantity import accelerators_of, format_cpu, format_memory, quantity_of


def _stage_name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError("it should be a name such as train")
    return value


def _command(value: Any) -> tuple[str, ...]:
    """The words of a command; a line is run by the shell."""
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return ("sh", "-c", value)
    words = [str(word) for word in value] if isinstance(value, list) else []
    if not words or not words[0] or any("\0" in word for word in words):
        raise ValueError("it should be a line such as python train.py, or a list of words")
    return tuple(words)


def _names(value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ValueError("it should be a list such as [a, b]")
    return tuple(names)


def _environment(value: Any) -> dict[str, str]:
    variables = {} if value is None else value
    if not isinstance(variables, dict) or any(isinstance(value, list | dict) for value in variables.values()):
        raise ValueError("it should be names with a text each, such as {SEED: '1'}")
    return {str(name): "" if text is None else str(text) for name, text in variables.items()}


_Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
_Quantity = Annotated[float | None, BeforeValidator(quantity_of)]


class _ResourcesEntry(StrictModel):
    """Cores and bytes, such as {cpu: 2, memory: 4Gi}."""

    cpu: _Quantity = None
    memory: _Quantity = None


class _StageEntry(StrictModel):
    """A stage such as {name: train, command: python train.py, after: [load]}."""

    name: Annotated[str, BeforeValidator(_stage_name)]
    command: Annotated[tuple[str, ...], BeforeValidator(_command)]
    after: _Names = ()
    inputs: _Names = ()
    outputs: _Names = ()
    environment: Annotated[dict[str, str], BeforeValidator(_environment)] = Field(default_factory=dict)
    resources: _ResourcesEntry | None = None
    accelerator: Annotated[tuple[str, int], BeforeValidator(accelerators_of)] | None = None


class _PipelineFile(StrictModel):
    stages: Annotated[list[_StageEntry], Field(min_length=1)]
    name: Annotated[str, BeforeValidator(str)] | None = None


def _read_own(source: Source) -> tuple[str, list[PipelineStage]]:
    """The pipeline's name and its stages, each waiting also for the makers of its inputs."""
    file = validate(_PipelineFile, source.documents[0], str(source.path))
    stages = [_stage(source, number, entry) for number, entry in enumerate(file.stages)]
    makers = {path: stage.name for stage in stages for path in stage.outputs}
    after = {
        stage.name: (*stage.after, *(makers[path] for path in stage.inputs if path in makers))
        for stage in stages
    }
    behind = [replace(stage, after=tuple(dict.fromkeys(after[stage.name]))) for stage in stages]
    return source.path.stem if file.name is None else file.name, behind


def _stage(source: Source, number: int, entry: _StageEntry) -> PipelineStage:
    resources = entry.resources or _ResourcesEntry()
    kind, count = entry.accelerator or ("", 0)
    return PipelineStage(
        name=entry.name,
        command=tuple((word,) for word in entry.command),
        place=(0, "stages", number),
        folder=source.folder,
        after=entry.after,
        environment=entry.environment,
        inputs=tuple(source.folder / path for path in entry.inputs),
        outputs=tuple(source.folder / path for path in entry.outputs),
        current=CurrentRequest(resources.cpu, resources.memory, accelerator=kind, accelerators=count),
    )


def _own_changes(stage: Mapping[str, Any], request: ResourceRequest) -> dict[str, Any]:
    """New values of a stage's fields."""
    amounts = {"cpu": format_cpu(request.cpu), "memory": format_memory(request.memory)}
    changes: dict[str, Any] = {"resources": {**(stage.get("resources") or {}), **amounts}}
    if request.accelerators is not None:
        named = f"{request.accelerator}:{request.accelerators}"
        changes["accelerator"] = named if request.accelerators else None
    return changes


@dataclass(frozen=True, slots=True)
class _Dialect:
    """Functions that recognise and read a dialect, and that return the fields a new request changes."""

    fits: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Source], tuple[str, list[PipelineStage]]]
    changes: Callable[[Mapping[str, Any], ResourceRequest], dict[str, Any]]


_DIALECTS = {
    "pipeline": _Dialect(lambda document: "stages" in document, _read_own, _own_changes),
    "kubeflow-v2": _Dialect(is_kubeflow, read_kubeflow, kubeflow_changes),
    "argo": _Dialect(is_argo, read_argo, argo_changes),
}
_RIGHT = (
    "it should have stages, or be a compiled Kubeflow pipeline (pipelineInfo, root, deploymentSpec) "
    "or an Argo Workflow (kind: Workflow, spec.templates)"
)


def read_pipeline(
    path: Path, work: Path | None = None, parameters: Mapping[str, str] | None = None
) -> Pipeline:
    """The pipeline in a file. `work` is the folder for its profiles, logs and files; see `work_folder`."""
    import yaml

    try:
        text = path.read_bytes().decode("utf-8")
        documents = load(text)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: there is no such file") from None
    except UnicodeDecodeError:
        raise BadInputError(f"{path} is not text, so it is no pipeline") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadInputError(f"{path} cannot be read as YAML: {one_line(str(error)):.200}") from None
    first = documents[0] if documents and isinstance(documents[0], Mapping) else {}
    name = next((name for name, dialect in _DIALECTS.items() if dialect.fits(first)), None)
    if name is None:
        raise BadInputError(f"{path} is no pipeline; {_RIGHT}")
    if parameters and name == "pipeline":
        raise BadInputError(f"{path} takes no parameters; those are for compiled Kubeflow pipelines")
    folder = path.resolve().parent
    artifacts = (work or work_folder(path)) / "artifacts"
    title, stages = _DIALECTS[name].read(Source(path, documents, folder, artifacts, parameters or {}))
    return Pipeline(one_line(title), path, name, ordered(path, stages), text, documents)


def work_folder(path: Path) -> Path:
    """Default folder for profiles, logs and files between stages of this pipeline."""
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    return home() / "pipelines" / f"{path.stem}-{digest}"


def write_requests(pipeline: Pipeline, requests: Mapping[str, ResourceRequest]) -> tuple[str, bool]:
    """The file's text with every stage's request in it, and whether its comments are still there."""
    changes = _DIALECTS[pipeline.format].changes
    made = {}
    for stage in pipeline.stages:
        for key, value in changes(at(pipeline.documents, stage.place), requests[stage.name]).items():
            made[stage.place, key] = FieldChange(stage.place, key, value)
    return changed(pipeline.text, list(made.values()))
