"""A compiled Kubeflow pipeline, version 1: an Argo Workflow whose templates hold containers."""

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
    listed,
    mapping,
    refuse_unknown_parameters,
)
from trimtab.pipelines.quantity import (
    device_resource,
    format_cpu,
    format_memory,
    is_device_resource,
    parse_quantity,
)

_KINDS = ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")
_PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_MADE = re.compile(r"\{\{\s*(?:tasks|steps)\.([\w-]+)\.outputs\.(parameters|artifacts)\.([\w.-]+)\s*\}\}")
_HOLDERS = ("container", "script")


def is_argo(document: Mapping[str, Any]) -> bool:
    """Whether it is a workflow."""
    return document.get("kind") in _KINDS and "templates" in mapping(_spec(document)[0])


def read_argo(source: Source) -> tuple[str, list[PipelineStage]]:
    """The workflow's name and a stage for every task that runs a container."""
    reader = _Reader(source)
    return reader.name, list(reader.stages())


def argo_changes(container: Mapping[str, Any], request: ResourceRequest) -> dict[str, Any]:
    """New values of a container's fields."""
    now = mapping(container, "resources")
    cpu, memory = format_cpu(request.cpu), format_memory(request.memory)
    requests = {**mapping(now, "requests"), "cpu": cpu, "memory": memory}
    limits = {**mapping(now, "limits"), "memory": memory}
    limit = parse_quantity("limits.cpu", limits.get("cpu"))
    if limit is not None and limit < request.cpu:
        limits["cpu"] = cpu
    if request.accelerators is not None:
        limits = {name: value for name, value in limits.items() if not is_device_resource(name)}
        requests = {name: value for name, value in requests.items() if not is_device_resource(name)}
    if request.accelerators:
        limits[device_resource(request.accelerator)] = request.accelerators
    return {"resources": {**now, "requests": requests, "limits": limits}}


def _spec(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], Place]:
    """A workflow's specification and its place in the file."""
    spec = mapping(document, "spec")
    if document.get("kind") == "CronWorkflow":
        return mapping(spec, "workflowSpec"), (0, "spec", "workflowSpec")
    return spec, (0, "spec")


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a template: its task's name and its inputs."""

    name: str
    template: str
    parameters: Mapping[str, Word | None] = field(default_factory=dict)
    artifacts: Mapping[str, Path | None] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    obstacle: str = ""


class _Reader:
    """Walks the templates of one file."""

    def __init__(self, source: Source) -> None:
        document = source.documents[0]
        self._source = source
        self._spec, self._top = _spec(document)
        self._templates = {
            str(mapping(entry).get("name")): (number, mapping(entry))
            for number, entry in enumerate(listed(self._spec, "templates"))
        }
        metadata = mapping(document, "metadata")
        name = str(metadata.get("name") or metadata.get("generateName") or source.path.stem)
        self.name = name.rstrip("-")
        arguments = mapping(self._spec, "arguments")
        refuse_unknown_parameters(source, [str(p.get("name")) for p in _named(arguments, "parameters")])
        self._parameters = {**_values(arguments), **source.parameters}

    def stages(self) -> Iterator[PipelineStage]:
        given: dict[str, Word | None] = {name: (value,) for name, value in self._parameters.items()}
        yield from self._called(_Call("", str(self._spec.get("entrypoint", "")), given))

    def _called(self, call: _Call) -> Iterator[PipelineStage]:
        number, template = self._template(call)
        if any(holder in template for holder in _HOLDERS):
            yield self._stage(call, number, template)
            return
        if call.name.count(".") > DEEPEST:
            raise BadInputError(f"{self._source.path}: templates call one another without end")
        tasks = _tasks(template)
        for name, task, before in tasks:
            obstacle = call.obstacle
            if any(key in task for key in ("withItems", "withParam", "withSequence")):
                obstacle = obstacle or LOOP
            elif "when" in task:
                obstacle = obstacle or CONDITION
            after = [stage for other in before for stage in self._stages_of(call, tasks, other)]
            yield from self._called(
                _Call(
                    _joined(call.name, name),
                    str(task.get("template", "")),
                    self._given(call, task, "parameters"),
                    self._given(call, task, "artifacts"),
                    (*call.after, *after),
                    obstacle,
                )
            )

    def _template(self, call: _Call) -> tuple[int, Mapping[str, Any]]:
        if call.template not in self._templates:
            caller = f'task "{call.name}"' if call.name else "entrypoint"
            raise BadInputError(
                f'{self._source.path}: the {caller} needs the template "{call.template}", which is missing'
            )
        return self._templates[call.template]

    def _stages_of(self, call: _Call, tasks: "list[_Task]", other: str) -> Iterator[str]:
        """The stages inside a task that another waits for."""
        full = _joined(call.name, other)
        task = next((task for name, task, _ in tasks if name == other), None)
        if task is None:
            yield full  # `ordered` refuses the unknown name
            return
        inner = _Call(full, str(task.get("template", "")))
        _, template = self._template(inner)
        if any(holder in template for holder in _HOLDERS):
            yield full
        elif full.count(".") <= DEEPEST:
            below = _tasks(template)
            for name, _, _ in below:
                yield from self._stages_of(inner, below, name)

    def _given(self, call: _Call, task: Mapping[str, Any], kind: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for entry in _named(mapping(task, "arguments"), kind):
            name, text = (
                str(entry.get("name")),
                str(entry.get("value" if kind == "parameters" else "from", "")),
            )
            made = _MADE.fullmatch(text)
            path = self._path(_joined(call.name, made[1]), made[3]) if made else None
            if kind == "artifacts":
                inherited = re.fullmatch(r"\{\{\s*inputs\.artifacts\.([\w.-]+)\s*\}\}", text)
                values[name] = call.artifacts.get(inherited[1]) if inherited else path
            elif path is not None:
                values[name] = (Content(path),)
            else:
                values[name] = None
                with suppress(UnresolvedError):
                    values[name] = self._filled(text, call.parameters)
        return values

    def _stage(self, call: _Call, number: int, template: Mapping[str, Any]) -> PipelineStage:
        holder = next(holder for holder in _HOLDERS if holder in template)
        container = mapping(template[holder])
        outputs = self._outputs(call.name, template)
        paths = {str(place): path for place, path in outputs.items()}
        inputs: list[Path] = []
        obstacle = call.obstacle
        command: tuple[Word, ...] = ()
        for entry in _named(mapping(template, "inputs"), "artifacts"):
            path = call.artifacts.get(str(entry.get("name")))
            if path is None:
                obstacle = obstacle or f"its input {entry.get('name')} is not made by a stage"
            else:
                inputs.append(path)
                paths[str(entry.get("path"))] = path
        if holder == "script":
            obstacle = obstacle or "it is a script that the cluster puts into its image"
        defaults = {name: (value,) for name, value in _values(mapping(template, "inputs")).items()}
        parameters: dict[str, Word | None] = {**defaults, **call.parameters}
        try:
            words = [*listed(container, "command"), *listed(container, "args")]
            command = tuple(self._filled(_moved(str(word), paths), parameters) for word in words)
            if not command:
                obstacle = obstacle or NO_COMMAND
        except UnresolvedError as error:
            obstacle = obstacle or str(error)
        name = call.name or call.template
        return PipelineStage(
            name=name,
            command=command,
            place=(*self._top, "templates", number, holder),
            folder=self._source.folder,
            after=tuple(dict.fromkeys(call.after)),
            environment=environment(container),
            inputs=tuple(inputs),
            outputs=tuple(outputs.values()),
            current=_current(f"{self._source.path}: {name}.resources", mapping(container, "resources")),
            obstacle=obstacle,
        )

    def _outputs(self, stage: str, template: Mapping[str, Any]) -> dict[str, Path]:
        """Files by their place in the container: artifacts, and the files of parameters."""
        entry = mapping(template, "outputs")
        files = {}
        for output in _named(entry, "artifacts"):
            if "path" in output:
                files[str(output["path"])] = self._path(stage, str(output.get("name")))
        for output in _named(entry, "parameters"):
            place = mapping(output, "valueFrom").get("path")
            if place is not None:
                # An output may be both a parameter and an artifact; it is one file.
                files.setdefault(str(place), self._path(stage, str(output.get("name"))))
        return files

    def _filled(self, text: str, parameters: Mapping[str, Word | None]) -> Word:
        return fill_placeholders(text, _PLACEHOLDER, lambda placeholder: self._value(placeholder, parameters))

    def _value(self, placeholder: str, parameters: Mapping[str, Word | None]) -> Word:
        if placeholder == "workflow.name":
            return (self.name,)
        scope, _, name = placeholder.partition(".parameters.")
        if scope == "workflow" and name in self._parameters:
            return (self._parameters[name],)
        word = parameters.get(name) if scope == "inputs" else None
        if word is None:
            raise UnresolvedError(f"its command uses {{{{{placeholder:.60}}}}}, which only the cluster knows")
        return word

    def _path(self, stage: str, key: str) -> Path:
        return self._source.artifacts / (stage or "entry") / key


_Task = tuple[str, Mapping[str, Any], list[str]]


def _tasks(template: Mapping[str, Any]) -> list[_Task]:
    """The tasks of a graph or of steps, each with its name and the tasks before it."""
    graph = [mapping(task) for task in listed(template, "dag", "tasks")]
    tasks: list[_Task] = [(str(task.get("name")), task, _before(task)) for task in graph]
    earlier: list[str] = []
    for together in listed(template, "steps"):
        group = [mapping(step) for step in (together if isinstance(together, list) else [together])]
        tasks += [(str(step.get("name")), step, list(earlier)) for step in group]
        earlier = [str(step.get("name")) for step in group]
    return tasks


def _before(task: Mapping[str, Any]) -> list[str]:
    """The tasks that a task names as before it, and the makers of its inputs."""
    names = [str(name) for name in listed(task, "dependencies")]
    # "load.Succeeded && (check || !guess.Failed)": words, each the name of a task with a state behind a dot.
    names += [word.partition(".")[0] for word in re.findall(r"[\w.-]+", str(task.get("depends") or ""))]
    arguments = mapping(task, "arguments")
    for entry in (*_named(arguments, "parameters"), *_named(arguments, "artifacts")):
        names += [made[1] for made in _MADE.finditer(f"{entry.get('value', '')}{entry.get('from', '')}")]
    return list(dict.fromkeys(names))


def _current(where: str, resources: Mapping[str, Any]) -> CurrentRequest:
    requests, limits = mapping(resources, "requests"), mapping(resources, "limits")

    def amount(kind: Mapping[str, Any], word: str, name: str) -> float | None:
        return parse_quantity(f"{where}.{word}.{name}", kind.get(name))

    cpu_limit, memory_limit = amount(limits, "limits", "cpu"), amount(limits, "limits", "memory")
    cpu, memory = amount(requests, "requests", "cpu"), amount(requests, "requests", "memory")
    device = next((name for name in (*limits, *requests) if is_device_resource(name)), "")
    count = str(limits.get(device, requests.get(device, 0)))  # nosec B113 # a mapping, no request
    return CurrentRequest(
        cpu=cpu_limit if cpu is None else cpu,
        memory=memory_limit if memory is None else memory,
        cpu_limit=cpu_limit,
        accelerator=device,
        accelerators=int(count) if count.isdigit() else 0,
    )


def _named(holder: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    """The parameters or artifacts of inputs, outputs or arguments."""
    return [mapping(entry) for entry in listed(holder, kind)]


def _values(holder: Mapping[str, Any]) -> dict[str, str]:
    """The values of parameters that have one."""
    return {str(p.get("name")): str(p["value"]) for p in _named(holder, "parameters") if "value" in p}


def _moved(text: str, paths: Mapping[str, Path]) -> str:
    """A word with the container's paths of artifacts replaced by local ones, longer ones first."""
    if not paths:
        return text
    pattern = "|".join(re.escape(place) for place in sorted(paths, key=len, reverse=True))
    return re.sub(pattern, lambda match: str(paths[match[0]]), text)


def _joined(outer: str, inner: str) -> str:
    return f"{outer}.{inner}" if outer else inner
