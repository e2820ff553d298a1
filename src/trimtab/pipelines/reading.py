"""Reads a pipeline's file, whichever dialect it is in, and writes new requests into its text."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, NotFoundError, home, one_line
from trimtab.pipelines.argo import argo_changes, is_argo, read_argo
from trimtab.pipelines.kubeflow import is_kubeflow, kubeflow_changes, read_kubeflow
from trimtab.pipelines.own_file import is_own, own_changes, read_own
from trimtab.pipelines.pipeline import Pipeline, Request, Stage, ordered
from trimtab.pipelines.source import Source


@dataclass(frozen=True, slots=True)
class _Format:
    """How one dialect is told from others, read, and what of it a new request changes."""

    fits: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Source], tuple[str, list[Stage]]]
    changes: Callable[[Mapping[str, Any], Request], dict[str, Any]]


_FORMATS = {
    "pipeline": _Format(is_own, read_own, own_changes),
    "kubeflow-v2": _Format(is_kubeflow, read_kubeflow, kubeflow_changes),
    "argo": _Format(is_argo, read_argo, argo_changes),
}
_RIGHT = (
    "it should have stages, or be a compiled Kubeflow pipeline (pipelineInfo, root, deploymentSpec) "
    "or an Argo Workflow (kind: Workflow, spec.templates)"
)


def read_pipeline(
    path: Path, work: Path | None = None, parameters: Mapping[str, str] | None = None
) -> Pipeline:
    """The pipeline in a file. `work` is the folder for what its stages leave behind; see `work_folder`."""
    text = _text(path)
    documents = _documents(path, text)
    if not documents or not isinstance(documents[0], Mapping):
        raise BadInputError(f"{path} is no pipeline; {_RIGHT}")
    name = next((name for name, each in _FORMATS.items() if each.fits(documents[0])), None)
    if name is None:
        raise BadInputError(f"{path} is no pipeline; {_RIGHT}")
    if parameters and name == "pipeline":
        raise BadInputError(f"{path} takes no parameters; those are for compiled Kubeflow pipelines")
    folder = path.resolve().parent
    artifacts = (work or work_folder(path)) / "artifacts"
    told, stages = _FORMATS[name].read(Source(path, documents, folder, artifacts, parameters or {}))
    return Pipeline(one_line(told), path, name, ordered(path, stages), text, documents)


def work_folder(path: Path) -> Path:
    """Where profiles, logs and files between stages of this pipeline are kept, if nobody says otherwise."""
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    return home() / "pipelines" / f"{path.stem}-{digest}"


def write_requests(pipeline: Pipeline, requests: Mapping[str, Request]) -> tuple[str, bool]:
    """The file's text with every stage's request in it, and whether comments are still there."""
    from trimtab.pipelines.yaml_edit import Change, at, changed

    changes = _FORMATS[pipeline.format].changes
    made = {}
    for stage in pipeline.stages:
        for key, value in changes(at(pipeline.documents, stage.place), requests[stage.name]).items():
            made[stage.place, key] = Change(stage.place, key, value)
    return changed(pipeline.text, list(made.values()))


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise NotFoundError(f"{path}: there is no such file") from None
    except UnicodeDecodeError:
        raise BadInputError(f"{path} is not text, so it is no pipeline") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None


def _documents(path: Path, text: str) -> tuple[Any, ...]:
    import yaml

    from trimtab.pipelines.yaml_edit import load

    try:
        return load(text)
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadInputError(f"{path} cannot be read as YAML: {one_line(str(error)):.200}") from None
