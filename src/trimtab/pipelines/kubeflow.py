"""A compiled Kubeflow pipeline, version 2: tasks of a graph, components, executors with their containers."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError
from trimtab.pipelines.pipeline import (
    CONDITION,
    DEEPEST,
    LOOP,
    NO_COMMAND,
    Content,
    CurrentRequest,
    PipelineStage,
    Place,
    ResourceRequest,
    Source,
    UnresolvedError,
    Word,
    environment,
    fill_placeholders,
    joined,
    listed,
    mapping,
    refuse_unknown_parameters,
)
from trimtab.pipelines.quantity import device_resource, format_cpu, format_memory, parse_quantity

_PLACEHOLDER = re.compile(r"\{\{\$(.*?)\}\}", re.DOTALL)
_NAMED = re.compile(r"\.(inputs|outputs)\.(parameters|artifacts)\[['\"](.+?)['\"]\](?:\.(\w+))?")


@dataclass(frozen=True, slots=True)
class Values:
    """Values of a task's placeholders. None where only the cluster knows."""

    task: str
    pipeline: str
    parameters: Mapping[str, Word | None]
    artifacts: Mapping[str, Path | None]
    output_artifacts: Mapping[str, Path]
    output_parameters: Mapping[str, Path]


def resolved(entry: Sequence[Any], values: Values) -> tuple[Word, ...]:
    """The words of a command or of its arguments; optional ones may become none or several."""
    return tuple(word for text in entry for word in _words(text, values))


def filled(text: str, values: Values) -> Word:
    """One text with its placeholders filled in."""
    return fill_placeholders(text, _PLACEHOLDER, lambda what: _value(what, values))


def _words(entry: Any, values: Values) -> list[Word]:
    structure = _structure(entry) if isinstance(entry, str) else entry
    if isinstance(structure, Mapping):
        if "Concat" in structure:
            pieces = [part for each in structure["Concat"] for word in _words(each, values) for part in word]
            return [joined(pieces)]
        if "IfPresent" in structure:
            return _optional(structure["IfPresent"], values)
        raise UnresolvedError("its command has a part that only Kubeflow can put together")
    if isinstance(structure, list):
        return [word for each in structure for word in _words(each, values)]
    return [filled(str(entry), values)]


def _structure(text: str) -> Any:
    """The parsed form of a compiled Concat or IfPresent; None for any other text."""
    if not text.startswith(('{"Concat"', '{"IfPresent"')):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _optional(entry: Mapping[str, Any], values: Values) -> list[Word]:
    name = entry.get("InputName")
    present = name in values.parameters or name in values.artifacts
    return _words(entry.get("Then" if present else "Else") or [], values)


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


def is_kubeflow(document: Mapping[str, Any]) -> bool:
    """Whether it is a compiled pipeline, bare or inside a job's description."""
    spec = mapping(document.get("pipelineSpec")) or document
    return "deploymentSpec" in spec and "root" in spec


def read_kubeflow(source: Source) -> tuple[str, list[PipelineStage]]:
    """The pipeline's name and a stage for every task that runs a container."""
    reader = _Reader(source)
    return reader.name, list(reader.stages())


def kubeflow_changes(container: Mapping[str, Any], request: ResourceRequest) -> dict[str, Any]:
    """New values of a container's fields: numbers that older clusters read, texts that newer ones read."""
    now = mapping(container.get("resources"))
    cpu, memory = round(request.cpu, 3), request.memory / 1e9
    new = {
        **now,
        "cpuRequest": cpu,
        "memoryRequest": memory,
        "memoryLimit": memory,
        "resourceCpuRequest": format_cpu(cpu),
        "resourceMemoryRequest": format_memory(request.memory),
        "resourceMemoryLimit": format_memory(request.memory),
    }
    limit = _current("resources", now).cpu_limit
    if limit is not None and limit < cpu:
        new |= {"cpuLimit": cpu, "resourceCpuLimit": format_cpu(cpu)}
    if request.accelerators == 0:
        new.pop("accelerator", None)
    elif request.accelerators is not None:
        resource, count = device_resource(request.accelerator), str(request.accelerators)
        new["accelerator"] = {
            "count": count,
            "resourceCount": count,
            "resourceType": resource,
            "type": resource,
        }
    return {"resources": dict(sorted(new.items()))}


@dataclass(frozen=True, slots=True)
class _Scope:
    """A graph of tasks, the name it is in, and what is given to it from outside."""

    tasks: Mapping[str, Any]
    prefix: str = ""
    parameters: Mapping[str, Word | None] = field(default_factory=dict)
    artifacts: Mapping[str, Path | None] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    obstacle: str = ""


class _Reader:
    """Walks the graph of one file."""

    def __init__(self, source: Source) -> None:
        document = source.documents[0]
        nested = "pipelineSpec" in document
        self._source = source
        self._spec = document["pipelineSpec"] if nested else document
        self._top: Place = (0, "pipelineSpec") if nested else (0,)
        self._values = mapping(mapping(document.get("runtimeConfig")).get("parameterValues"))
        self._components = mapping(self._spec.get("components"))
        self._executors = mapping(mapping(self._spec.get("deploymentSpec")).get("executors"))
        self.name = str(mapping(self._spec.get("pipelineInfo")).get("name") or source.path.stem)

    def stages(self) -> Iterator[PipelineStage]:
        root = mapping(self._spec.get("root"))
        defined = mapping(mapping(root.get("inputDefinitions")).get("parameters"))
        refuse_unknown_parameters(self._source, list(defined))
        given: dict[str, Word | None] = dict.fromkeys(defined)
        given |= _defaults(root)
        given |= {name: (_text(value),) for name, value in self._values.items()}
        given |= {name: (value,) for name, value in self._source.parameters.items()}
        tasks = mapping(mapping(root.get("dag")).get("tasks"))
        yield from self._inside(_Scope(tasks, "", given, {}))

    def _inside(self, scope: _Scope) -> Iterator[PipelineStage]:
        if scope.prefix.count(".") > DEEPEST:
            raise BadInputError(f"{self._source.path}: graphs of tasks are nested without end")
        for name, entry in scope.tasks.items():
            task = mapping(entry)
            component = self._component(scope, name)
            values = self._task_values(scope, name, task, component)
            after = (*scope.after, *self._waits_for(scope, task))
            iterated = "parameterIterator" in task or "artifactIterator" in task
            conditional = "condition" in mapping(task.get("triggerPolicy"))
            obstacle = scope.obstacle or (LOOP if iterated else CONDITION if conditional else "")
            if "dag" in component:
                inner = mapping(component["dag"].get("tasks"))
                prefix = f"{scope.prefix}{name}."
                yield from self._inside(
                    _Scope(inner, prefix, values.parameters, values.artifacts, after, obstacle)
                )
            elif "container" in self._executor(component):
                yield self._stage(scope.prefix + name, component["executorLabel"], values, after, obstacle)

    def _executor(self, component: Mapping[str, Any]) -> Mapping[str, Any]:
        return mapping(self._executors.get(str(component.get("executorLabel"))))

    def _component(self, scope: _Scope, name: str) -> Mapping[str, Any]:
        entry = scope.tasks.get(name)
        reference = str(mapping(mapping(entry).get("componentRef")).get("name"))
        if reference not in self._components:
            raise BadInputError(
                f'{self._source.path}: task "{scope.prefix}{name}" is of component "{reference}",'
                " which is not among the components"
            )
        return mapping(self._components[reference])

    def _stage(
        self, name: str, label: str, values: Values, after: tuple[str, ...], obstacle: str
    ) -> PipelineStage:
        container = mapping(self._executors[label]["container"])
        where = f"{self._source.path}: {label}.resources"
        command: tuple[Word, ...] = ()
        try:
            command = resolved([*listed(container.get("command")), *listed(container.get("args"))], values)
            if not command:
                obstacle = obstacle or NO_COMMAND
        except UnresolvedError as error:
            obstacle = obstacle or str(error)
        return PipelineStage(
            name=name,
            command=command,
            place=(*self._top, "deploymentSpec", "executors", label, "container"),
            folder=self._source.folder,
            after=tuple(dict.fromkeys(after)),
            environment=environment(container),
            inputs=tuple(path for path in values.artifacts.values() if path is not None),
            outputs=(*values.output_artifacts.values(), *values.output_parameters.values()),
            current=_current(where, mapping(container.get("resources"))),
            obstacle=obstacle,
        )

    def _task_values(
        self, scope: _Scope, name: str, task: Mapping[str, Any], component: Mapping[str, Any]
    ) -> Values:
        inputs = mapping(task.get("inputs"))
        types = mapping(mapping(component.get("inputDefinitions")).get("parameters"))
        parameters: dict[str, Word | None] = dict(_defaults(component))
        for key, entry in mapping(inputs.get("parameters")).items():
            parameters[key] = self._parameter(scope, mapping(entry), mapping(types.get(key)))
        artifacts = {
            key: self._artifact_given(scope, mapping(entry))
            for key, entry in mapping(inputs.get("artifacts")).items()
        }
        outputs = mapping(component.get("outputDefinitions"))
        stage = scope.prefix + name
        values = Values(
            task=name,
            pipeline=self.name,
            parameters=parameters,
            artifacts=artifacts,
            output_artifacts={key: self._path(stage, key) for key in mapping(outputs.get("artifacts"))},
            output_parameters={key: self._path(stage, key) for key in mapping(outputs.get("parameters"))},
        )
        for key, word in parameters.items():
            # A constant may hold placeholders of the same task's other inputs.
            if word is not None and len(word) == 1 and isinstance(word[0], str) and "{{$" in word[0]:
                try:
                    parameters[key] = filled(word[0], values)
                except UnresolvedError:
                    parameters[key] = None
        return values

    def _parameter(self, scope: _Scope, entry: Mapping[str, Any], type_: Mapping[str, Any]) -> Word | None:
        if "runtimeValue" in entry:
            constant = mapping(entry["runtimeValue"]).get("constant")
            return (_text(constant, str(type_.get("parameterType", ""))),)
        if "componentInputParameter" in entry:
            return scope.parameters.get(entry["componentInputParameter"])
        source = mapping(entry.get("taskOutputParameter"))
        path = self._made(scope.tasks, scope.prefix, source, "parameters")
        return None if path is None else (Content(path),)

    def _artifact_given(self, scope: _Scope, entry: Mapping[str, Any]) -> Path | None:
        if "componentInputArtifact" in entry:
            return scope.artifacts.get(entry["componentInputArtifact"])
        return self._made(scope.tasks, scope.prefix, mapping(entry.get("taskOutputArtifact")), "artifacts")

    def _made(
        self, tasks: Mapping[str, Any], prefix: str, source: Mapping[str, Any], kind: str
    ) -> Path | None:
        """The file of an output of a task, or of a task inside it; None where it is made outside stages."""
        short = "Artifact" if kind == "artifacts" else "Parameter"
        name = str(source.get("producerTask") or source.get("producerSubtask"))
        key = str(source.get(f"output{short}Key"))
        if name not in tasks or prefix.count(".") > DEEPEST:
            return None
        component = self._component(_Scope(tasks, prefix), name)
        dag = mapping(component.get("dag"))
        if not dag:
            return self._path(prefix + name, key) if "container" in self._executor(component) else None
        selected = mapping(mapping(mapping(dag.get("outputs")).get(kind)).get(key))
        if kind == "artifacts":
            inner = mapping(next(iter(listed(selected.get("artifactSelectors"))), None))
        else:
            inner = mapping(selected.get("valueFromParameter"))
        return self._made(mapping(dag.get("tasks")), f"{prefix}{name}.", inner, kind)

    def _waits_for(self, scope: _Scope, task: Mapping[str, Any]) -> Iterator[str]:
        """The stages that a task waits for: those it names, and the makers of its inputs."""
        names = [str(name) for name in listed(task.get("dependentTasks"))]
        inputs = mapping(task.get("inputs"))
        for kind, short in (("artifacts", "Artifact"), ("parameters", "Parameter")):
            for entry in mapping(inputs.get(kind)).values():
                maker = mapping(mapping(entry).get(f"taskOutput{short}")).get("producerTask")
                names += [str(maker)] if maker is not None else []
        for name in names:
            yield from self._stages_of(scope, name)

    def _stages_of(self, scope: _Scope, name: str) -> Iterator[str]:
        if name not in scope.tasks:
            yield scope.prefix + name  # no task: whoever orders the stages says so
            return
        component = self._component(scope, name)
        if "dag" in component:
            inner = _Scope(mapping(component["dag"].get("tasks")), f"{scope.prefix}{name}.")
            if inner.prefix.count(".") <= DEEPEST:
                for each in inner.tasks:
                    yield from self._stages_of(inner, each)
        elif "container" in self._executor(component):
            yield scope.prefix + name

    def _path(self, stage: str, key: str) -> Path:
        return self._source.artifacts / stage.replace("/", "-") / key.replace("/", "-")


def _current(where: str, resources: Mapping[str, Any]) -> CurrentRequest:
    def amount(name: str, scale: float) -> float | None:
        text = resources.get(f"resource{name[0].upper()}{name[1:]}")
        if text is not None:
            return parse_quantity(f"{where}.resource{name[0].upper()}{name[1:]}", text)
        number = parse_quantity(f"{where}.{name}", resources.get(name))
        return None if number is None else number * scale

    cpu_limit = amount("cpuLimit", 1.0)
    cpu, memory = amount("cpuRequest", 1.0), amount("memoryRequest", 1e9)
    device = mapping(resources.get("accelerator"))
    count = str(device.get("resourceCount") or device.get("count") or 0)
    return CurrentRequest(
        cpu=cpu_limit if cpu is None else cpu,
        memory=amount("memoryLimit", 1e9) if memory is None else memory,
        cpu_limit=cpu_limit,
        accelerator=str(device.get("resourceType") or device.get("type") or ""),
        accelerators=int(count) if count.isdigit() else 0,
    )


def _defaults(component: Mapping[str, Any]) -> dict[str, Word | None]:
    defined = mapping(mapping(component.get("inputDefinitions")).get("parameters"))
    return {
        name: (_text(entry["defaultValue"], str(entry.get("parameterType", ""))),)
        for name, entry in ((name, mapping(each)) for name, each in defined.items())
        if "defaultValue" in entry
    }


def _text(value: Any, type_: str = "") -> str:
    """A parameter as a container sees it: whole numbers without a point, lists and structures as JSON."""
    if isinstance(value, float) and value.is_integer() and type_ != "NUMBER_DOUBLE":
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)
