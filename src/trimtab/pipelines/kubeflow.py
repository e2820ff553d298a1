"""A compiled Kubeflow pipeline, version 2: tasks of a graph, components, executors with their containers."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
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
    """Values of a task's placeholders; None if only the cluster knows them."""

    task: str
    pipeline: str
    parameters: Mapping[str, Word | None]
    artifacts: Mapping[str, Path | None]
    output_artifacts: Mapping[str, Path]
    output_parameters: Mapping[str, Path]


def filled(text: str, values: Values) -> Word:
    """One text with its placeholders filled in."""
    return fill_placeholders(text, _PLACEHOLDER, lambda placeholder: _value(placeholder, values))


def _words(entry: Any, values: Values) -> list[Word]:
    """The words of a command's entry; a compiled Concat is one, an IfPresent none or several."""
    structure = entry
    if isinstance(entry, str):
        structure = None
        if entry.startswith(('{"Concat"', '{"IfPresent"')):
            with suppress(ValueError):
                structure = json.loads(entry)
    if isinstance(structure, list):
        return [word for inner in structure for word in _words(inner, values)]
    if not isinstance(structure, Mapping):
        return [filled(str(entry), values)]
    if "Concat" in structure:
        words = [word for inner in structure["Concat"] for word in _words(inner, values)]
        return [joined([part for word in words for part in word])]
    if "IfPresent" in structure:
        option = structure["IfPresent"]
        name = option.get("InputName")
        present = name in values.parameters or name in values.artifacts
        return _words(option.get("Then" if present else "Else") or [], values)
    raise UnresolvedError("its command has a part that only Kubeflow can put together")


def _value(placeholder: str, values: Values) -> Word:
    if placeholder == "":
        raise UnresolvedError("its command needs Kubeflow's own executor, the package kfp, inside its image")
    simple = {".pipeline_task_name": values.task, ".pipeline_job_name": values.pipeline}
    if placeholder in simple:
        return (simple[placeholder],)
    match = _NAMED.fullmatch(placeholder)
    if match is None:
        raise UnresolvedError(f"its command uses {{{{${placeholder:.60}}}}}, which only the cluster knows")
    side, kind, name, field = match.groups()
    tables: dict[tuple[str, str, str | None], Mapping[str, Word | Path | None]] = {
        ("inputs", "parameters", None): values.parameters,
        ("inputs", "artifacts", "path"): values.artifacts,
        ("inputs", "artifacts", "uri"): values.artifacts,
        ("outputs", "artifacts", "path"): values.output_artifacts,
        ("outputs", "artifacts", "uri"): values.output_artifacts,
        ("outputs", "parameters", "output_file"): values.output_parameters,
    }
    value = tables.get((side, kind, field), {}).get(name)
    if value is None:
        raise UnresolvedError(f"{side.removesuffix('s')} {name} has no value outside the cluster")
    return value if isinstance(value, tuple) else (str(value),)


def is_kubeflow(document: Mapping[str, Any]) -> bool:
    """Whether it is a compiled pipeline, bare or inside a job's description."""
    spec = mapping(document, "pipelineSpec") or document
    return "deploymentSpec" in spec and "root" in spec


def read_kubeflow(source: Source) -> tuple[str, list[PipelineStage]]:
    """The pipeline's name and a stage for every task that runs a container."""
    reader = _Reader(source)
    return reader.name, list(reader.stages())


def kubeflow_changes(container: Mapping[str, Any], request: ResourceRequest) -> dict[str, Any]:
    """New values of a container's fields: numbers for older clusters, texts for newer ones."""
    now = mapping(container, "resources")
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
    """A graph of tasks, the prefix of its names, and its inputs."""

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
        self._values = mapping(document, "runtimeConfig", "parameterValues")
        self._components = mapping(self._spec, "components")
        self._executors = mapping(self._spec, "deploymentSpec", "executors")
        self.name = str(mapping(self._spec, "pipelineInfo").get("name") or source.path.stem)

    def stages(self) -> Iterator[PipelineStage]:
        root = mapping(self._spec, "root")
        defined = mapping(root, "inputDefinitions", "parameters")
        refuse_unknown_parameters(self._source, list(defined))
        given: dict[str, Word | None] = dict.fromkeys(defined)
        given |= _defaults(root)
        given |= {name: (_text(value),) for name, value in self._values.items()}
        given |= {name: (value,) for name, value in self._source.parameters.items()}
        tasks = mapping(root, "dag", "tasks")
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
            conditional = "condition" in mapping(task, "triggerPolicy")
            obstacle = scope.obstacle or (LOOP if iterated else CONDITION if conditional else "")
            if "dag" in component:
                inner = mapping(component["dag"], "tasks")
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
        reference = str(mapping(entry, "componentRef").get("name"))
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
            entries = [*listed(container, "command"), *listed(container, "args")]
            command = tuple(word for entry in entries for word in _words(entry, values))
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
            current=_current(where, mapping(container, "resources")),
            obstacle=obstacle,
        )

    def _task_values(
        self, scope: _Scope, name: str, task: Mapping[str, Any], component: Mapping[str, Any]
    ) -> Values:
        inputs = mapping(task, "inputs")
        types = mapping(component, "inputDefinitions", "parameters")
        parameters: dict[str, Word | None] = dict(_defaults(component))
        for key, entry in mapping(inputs, "parameters").items():
            parameters[key] = self._parameter(scope, mapping(entry), mapping(types, key))
        artifacts: dict[str, Path | None] = {}
        for key, given in mapping(inputs, "artifacts").items():
            entry = mapping(given)
            source = mapping(entry, "taskOutputArtifact")
            artifacts[key] = (
                scope.artifacts.get(entry["componentInputArtifact"])
                if "componentInputArtifact" in entry
                else self._made(scope.tasks, scope.prefix, source, "artifacts")
            )
        outputs = mapping(component, "outputDefinitions")
        stage = scope.prefix + name
        values = Values(
            task=name,
            pipeline=self.name,
            parameters=parameters,
            artifacts=artifacts,
            output_artifacts={key: self._path(stage, key) for key in mapping(outputs, "artifacts")},
            output_parameters={key: self._path(stage, key) for key in mapping(outputs, "parameters")},
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
        source = mapping(entry, "taskOutputParameter")
        path = self._made(scope.tasks, scope.prefix, source, "parameters")
        return None if path is None else (Content(path),)

    def _made(
        self, tasks: Mapping[str, Any], prefix: str, source: Mapping[str, Any], kind: str
    ) -> Path | None:
        """The file of an output of a task, or of a task inside it; None if no stage makes it."""
        short = "Artifact" if kind == "artifacts" else "Parameter"
        name = str(source.get("producerTask") or source.get("producerSubtask"))
        key = str(source.get(f"output{short}Key"))
        if name not in tasks or prefix.count(".") > DEEPEST:
            return None
        component = self._component(_Scope(tasks, prefix), name)
        dag = mapping(component, "dag")
        if not dag:
            return self._path(prefix + name, key) if "container" in self._executor(component) else None
        selected = mapping(dag, "outputs", kind, key)
        if kind == "artifacts":
            inner = mapping(next(iter(listed(selected, "artifactSelectors")), None))
        else:
            inner = mapping(selected, "valueFromParameter")
        return self._made(mapping(dag, "tasks"), f"{prefix}{name}.", inner, kind)

    def _waits_for(self, scope: _Scope, task: Mapping[str, Any]) -> Iterator[str]:
        """The stages that a task waits for: those it names, and the makers of its inputs."""
        names = [str(name) for name in listed(task, "dependentTasks")]
        inputs = mapping(task, "inputs")
        for kind, short in (("artifacts", "Artifact"), ("parameters", "Parameter")):
            for entry in mapping(inputs, kind).values():
                maker = mapping(entry, f"taskOutput{short}").get("producerTask")
                names += [str(maker)] if maker is not None else []
        for name in names:
            yield from self._stages_of(scope, name)

    def _stages_of(self, scope: _Scope, name: str) -> Iterator[str]:
        if name not in scope.tasks:
            yield scope.prefix + name  # `ordered` refuses the unknown name
            return
        component = self._component(scope, name)
        if "dag" in component:
            inner = _Scope(mapping(component["dag"], "tasks"), f"{scope.prefix}{name}.")
            if inner.prefix.count(".") <= DEEPEST:
                for task in inner.tasks:
                    yield from self._stages_of(inner, task)
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
    device = mapping(resources, "accelerator")
    count = str(device.get("resourceCount") or device.get("count") or 0)
    return CurrentRequest(
        cpu=cpu_limit if cpu is None else cpu,
        memory=amount("memoryLimit", 1e9) if memory is None else memory,
        cpu_limit=cpu_limit,
        accelerator=str(device.get("resourceType") or device.get("type") or ""),
        accelerators=int(count) if count.isdigit() else 0,
    )


def _defaults(component: Mapping[str, Any]) -> dict[str, Word | None]:
    defined = mapping(component, "inputDefinitions", "parameters")
    return {
        name: (_text(entry["defaultValue"], str(entry.get("parameterType", ""))),)
        for name, entry in ((name, mapping(value)) for name, value in defined.items())
        if "defaultValue" in entry
    }


def _text(value: Any, type_: str = "") -> str:
    """A parameter as text for a container: integers without a point, lists and structures as JSON."""
    if isinstance(value, float) and value.is_integer() and type_ != "NUMBER_DOUBLE":
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)
