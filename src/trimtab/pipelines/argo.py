"""A compiled Kubeflow pipeline, version 1: an Argo Workflow whose templates hold containers."""

import re
from collections.abc import Iterator, Mapping
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
    now = mapping(container.get("resources"))
    cpu, memory = format_cpu(request.cpu), format_memory(request.memory)
    requests = {**mapping(now.get("requests")), "cpu": cpu, "memory": memory}
    limits = {**mapping(now.get("limits")), "memory": memory}
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
    """A workflow's own part of a file, and where it is."""
    spec = mapping(document.get("spec"))
    if document.get("kind") == "CronWorkflow":
        return mapping(spec.get("workflowSpec")), (0, "spec", "workflowSpec")
    return spec, (0, "spec")


@dataclass(frozen=True, slots=True)
class _Call:
    """A template that is called: its task's name and what is given to it."""

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
            for number, entry in enumerate(listed(self._spec.get("templates")))
        }
        metadata = mapping(document.get("metadata"))
        name = str(metadata.get("name") or metadata.get("generateName") or source.path.stem)
        self.name = name.rstrip("-")
        entry = [mapping(each) for each in listed(mapping(self._spec.get("arguments")).get("parameters"))]
        self._parameters = {str(each.get("name")): str(each["value"]) for each in entry if "value" in each}
        refuse_unknown_parameters(source, [str(each.get("name")) for each in entry])
        self._parameters |= source.parameters

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
            names = {each for each, _, _ in tasks}
            after = [stage for other in before for stage in self._stages_of(call, tasks, other, names)]
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
            whose = f'task "{call.name}"' if call.name else "entrypoint"
            raise BadInputError(
                f'{self._source.path}: the {whose} needs the template "{call.template}", which is not there'
            )
        return self._templates[call.template]

    def _stages_of(self, call: _Call, tasks: "list[_Task]", other: str, names: set[str]) -> Iterator[str]:
        """The stages inside a task that another waits for."""
        full = _joined(call.name, other)
        if other not in names:
            yield full  # no task: whoever orders the stages says so
            return
        task = next(task for name, task, _ in tasks if name == other)
        inner = _Call(full, str(task.get("template", "")))
        _, template = self._template(inner)
        if any(holder in template for holder in _HOLDERS):
            yield full
        elif full.count(".") <= DEEPEST:
            below = _tasks(template)
            for name, _, _ in below:
                yield from self._stages_of(inner, below, name, {each for each, _, _ in below})

    def _given(self, call: _Call, task: Mapping[str, Any], kind: str) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for entry in map(mapping, listed(mapping(task.get("arguments")).get(kind))):
            text = str(entry.get("value" if kind == "parameters" else "from", ""))
            made = _MADE.fullmatch(text)
            path = self._path(_joined(call.name, made[1]), made[3]) if made else None
            if kind == "artifacts":
                inherited = re.fullmatch(r"\{\{\s*inputs\.artifacts\.([\w.-]+)\s*\}\}", text)
                given[str(entry.get("name"))] = call.artifacts.get(inherited[1]) if inherited else path
            elif path is not None:
                given[str(entry.get("name"))] = (Content(path),)
            else:
                try:
                    given[str(entry.get("name"))] = self._filled(text, call.parameters)
                except UnresolvedError:
                    given[str(entry.get("name"))] = None
        return given

    def _stage(self, call: _Call, number: int, template: Mapping[str, Any]) -> PipelineStage:
        holder = next(holder for holder in _HOLDERS if holder in template)
        container = mapping(template[holder])
        outputs = self._outputs(call.name, template)
        paths = {str(place): path for place, path in outputs.items()}
        inputs: list[Path] = []
        obstacle = call.obstacle
        command: tuple[Word, ...] = ()
        for entry in map(mapping, listed(mapping(template.get("inputs")).get("artifacts"))):
            path = call.artifacts.get(str(entry.get("name")))
            if path is None:
                obstacle = obstacle or f"its input {entry.get('name')} is not made by a stage"
            else:
                inputs.append(path)
                paths[str(entry.get("path"))] = path
        if holder == "script":
            obstacle = obstacle or "it is a script that the cluster puts into its image"
        parameters = {**_defaults(template), **call.parameters}
        try:
            words = [*listed(container.get("command")), *listed(container.get("args"))]
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
            current=_current(f"{self._source.path}: {name}.resources", mapping(container.get("resources"))),
            obstacle=obstacle,
        )

    def _outputs(self, stage: str, template: Mapping[str, Any]) -> dict[str, Path]:
        """Files by their place in the container: artifacts, and the files of parameters."""
        entry = mapping(template.get("outputs"))
        found = {}
        for each in map(mapping, listed(entry.get("artifacts"))):
            if "path" in each:
                found[str(each["path"])] = self._path(stage, str(each.get("name")))
        for each in map(mapping, listed(entry.get("parameters"))):
            place = mapping(each.get("valueFrom")).get("path")
            if place is not None:
                # An output may be given out as a parameter and as an artifact; it is one file.
                found.setdefault(str(place), self._path(stage, str(each.get("name"))))
        return found

    def _filled(self, text: str, parameters: Mapping[str, Word | None]) -> Word:
        return fill_placeholders(text, _PLACEHOLDER, lambda what: self._value(what, parameters))

    def _value(self, what: str, parameters: Mapping[str, Word | None]) -> Word:
        if what == "workflow.name":
            return (self.name,)
        scope, _, name = what.partition(".parameters.")
        if scope == "workflow" and name in self._parameters:
            return (self._parameters[name],)
        word = parameters.get(name) if scope == "inputs" else None
        if word is None:
            raise UnresolvedError(f"its command uses {{{{{what:.60}}}}}, which only the cluster knows")
        return word

    def _path(self, stage: str, key: str) -> Path:
        return self._source.artifacts / (stage or "entry") / key


_Task = tuple[str, Mapping[str, Any], list[str]]


def _tasks(template: Mapping[str, Any]) -> list[_Task]:
    """The tasks of a graph or of steps, each with its name and the tasks before it."""
    graph = [mapping(task) for task in listed(mapping(template.get("dag")).get("tasks"))]
    found: list[_Task] = [(str(task.get("name")), task, _before(task)) for task in graph]
    earlier: list[str] = []
    for together in listed(template.get("steps")):
        group = [mapping(step) for step in (together if isinstance(together, list) else [together])]
        found += [(str(step.get("name")), step, list(earlier)) for step in group]
        earlier = [str(step.get("name")) for step in group]
    return found


def _before(task: Mapping[str, Any]) -> list[str]:
    """Whom a task names as before it, and who makes what it is given."""
    names = [str(name) for name in listed(task.get("dependencies"))]
    # "load.Succeeded && (check || !guess.Failed)": words, each the name of a task with a state behind a dot.
    names += [word.partition(".")[0] for word in re.findall(r"[\w.-]+", str(task.get("depends") or ""))]
    arguments = mapping(task.get("arguments"))
    for entry in (*listed(arguments.get("parameters")), *listed(arguments.get("artifacts"))):
        given = mapping(entry)
        names += [made[1] for made in _MADE.finditer(f"{given.get('value', '')}{given.get('from', '')}")]
    return list(dict.fromkeys(names))


def _current(where: str, resources: Mapping[str, Any]) -> CurrentRequest:
    requests, limits = mapping(resources.get("requests")), mapping(resources.get("limits"))

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


def _defaults(template: Mapping[str, Any]) -> dict[str, Word | None]:
    entry = map(mapping, listed(mapping(template.get("inputs")).get("parameters")))
    return {str(each.get("name")): (str(each["value"]),) for each in entry if "value" in each}


def _moved(text: str, paths: Mapping[str, Path]) -> str:
    """A word with the container's paths of artifacts made ours, longer ones first."""
    if not paths:
        return text
    pattern = "|".join(re.escape(place) for place in sorted(paths, key=len, reverse=True))
    return re.sub(pattern, lambda found: str(paths[found[0]]), text)


def _joined(outer: str, inner: str) -> str:
    return f"{outer}.{inner}" if outer else inner
