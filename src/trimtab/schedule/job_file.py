"""Job files: YAML with one document per job, checked field by field. Described in docs/job-files.md."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from trimtab.core import (
    BadInputError,
    Bytes,
    Command,
    Dollars,
    Kind,
    Name,
    Seconds,
    StrictModel,
    Whole,
    Workload,
    names_a_secret,
    one_line,
    quantity,
    validate,
)
from trimtab.schedule.job import Checkpoint, DataSet, Job, Priority, Submission, Worker, kind_of

_MOST = 1_000_000  # workers, accelerators, attempts
_EXAMPLE = "name: resnet50, command: python train.py"
_NAME = re.compile(r"[\w.-]{1,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KIND = re.compile(r"([\w. -]{1,63})(?::([1-9]\d{0,5}))?")


def _gpus(value: Any) -> float | tuple[int, int] | None:
    """None for 0, a share of one accelerator (0.25), or fewest and most (8, 2..16)."""
    if isinstance(value, float):
        return _share(value)
    return None if value == 0 and not isinstance(value, bool) else _range(value)


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError("it should be a number above 0 and at most 1")
    return float(value)


def _range(value: Any) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,9})\s*(?:\.\.\s*(\d{1,9}))?", "" if value is True else str(value))
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
    if not 1 <= low <= high <= _MOST:
        raise ValueError("it should be a whole number such as 8, or a range such as 2..16")
    return low, high


def _accelerators(value: Any) -> tuple[tuple[str, ...], int]:
    """Kinds, and how many of them if that is written too (a100:8), else 0."""
    found = [_KIND.fullmatch(each.strip()) if isinstance(each, str) else None for each in _listed(value)]
    kinds = [each for each in found if each is not None]
    if len(kinds) < len(found):
        raise ValueError(
            "it should be a kind such as a100, a list such as [a100, v100], or kinds with a count: a100:8"
        )
    counts = {int(each[2] or 0) for each in kinds}
    if len(counts) > 1:
        raise ValueError("the count should be the same for every kind")
    return tuple(dict.fromkeys(kind_of(each[1]) for each in kinds)), counts.pop() if counts else 0


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _names(pattern: re.Pattern[str]) -> BeforeValidator:
    """Validator of one name, or a list of them."""

    def check(value: Any) -> tuple[str, ...]:
        listed = _listed(value)
        if not all(isinstance(each, str) and pattern.fullmatch(each) for each in listed):
            raise ValueError("it should be a list of names, such as [A, B]")
        return tuple(dict.fromkeys(listed))

    return BeforeValidator(check)


def _signal(value: Any) -> Any:
    """USR1, usr1 and SIGUSR1 are one signal."""
    return value.upper().removeprefix("SIG") if isinstance(value, str) else value


def _variable(value: Any) -> str:
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        raise ValueError("it should be the name of a variable: letters, digits and underscores")
    if names_a_secret(value):
        raise ValueError(
            f"it looks like a secret, and its value would be kept in the store; write pass: [{value}], and "
            "the value is taken from the scheduler's own environment"
        )
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str | int | float) or "\0" in str(value):
        raise ValueError("it should be text, in quotes if need be")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _path(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("it should be a path such as /home/me/project")
    return value


def _short_form(name: str) -> BeforeValidator:
    """Validator that takes a value without a name as the field `name`."""
    return BeforeValidator(lambda value: value if isinstance(value, Mapping) else {name: value})


def _checkpoint_short_form(value: Any) -> Any:
    if value is False:
        return None
    return {"signal": value} if isinstance(value, str) else value


_Variable = Annotated[str, BeforeValidator(_variable)]
_Text = Annotated[str, BeforeValidator(_text)]
_Duration = Annotated[Seconds, Field(gt=0)]
_Positive = Annotated[float, quantity(float, "a number above 0"), Field(gt=0)]


class _Document(StrictModel):
    """A model whose fields may be written as null, which is as good as absent."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, Mapping) else data


class ResourcesDocument(_Document):
    """`resources` of a job: what its workers need together (accelerators) and each (CPUs, memory)."""

    gpus: Annotated[float | tuple[int, int] | None, BeforeValidator(_gpus)] = None
    share: Annotated[float | None, BeforeValidator(_share)] = None
    accelerators: Annotated[tuple[tuple[str, ...], int], BeforeValidator(_accelerators)] = ((), 0)
    cpus: _Positive = 1.0
    memory: Annotated[Bytes, Field(gt=0)] = 0.0

    @model_validator(mode="after")
    def _one_count(self) -> Self:
        kinds, count = self.accelerators
        named: list[str] = [name for name in ("gpus", "share") if name in self.model_fields_set]
        named += ["accelerators"] if count else []
        if len(named) > 1:
            raise ValueError(f"{' and '.join(named)} both say how many accelerators; keep one of the two")
        if kinds and "gpus" in named and self.gpus is None:
            raise ValueError("gpus is 0 but accelerators names kinds, so at least 1 is needed")
        return self

    def gang(self) -> tuple[float, tuple[int, int] | None]:
        """Accelerators of one worker, and the range of accelerators of all workers if it is given."""
        kinds, count = self.accelerators
        if isinstance(self.gpus, tuple) or count:
            return 1.0, self.gpus if isinstance(self.gpus, tuple) else (count, count)
        return self.share or self.gpus or (1.0 if kinds else 0.0), None


class DeadlineDocument(_Document):
    """`deadline` of a job: a duration from its submission; a job is refused that cannot meet a hard one."""

    by: _Duration
    hard: Annotated[bool, Field(strict=True)] = False


class CheckpointDocument(_Document):
    """`checkpoint` of a job: see `Checkpoint`."""

    signal: Annotated[Literal["USR1", "USR2", "TERM", "INT", "HUP"], BeforeValidator(_signal)] | None = None
    command: Command = ()
    interval: _Duration | None = None
    seconds: _Duration = Checkpoint().seconds
    restart: _Duration = Checkpoint().restart

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.command and self.signal:
            raise ValueError("signal and command both say how it saves; keep one of the two")
        return self

    def checkpoint(self) -> Checkpoint:
        """As a scheduler uses it; without a command, the signal is USR1 unless another is given."""
        signal = None if self.command else self.signal or "USR1"
        return Checkpoint(signal, self.command, self.interval, self.seconds, self.restart)


class DataDocument(_Document):
    """`data` of a job: where its data is, how much there is, and nodes that hold a copy."""

    zone: Name | Literal[""] = ""
    size: Annotated[Bytes, Field(gt=0)]
    nodes: Annotated[tuple[str, ...], _names(_NAME)] = ()


class JobDocument(_Document):
    """One job of a job file, and of a request to submit jobs."""

    name: Name
    tenant: Name = "default"
    kind: Kind = Kind.TRAINING
    command: Command
    resources: ResourcesDocument = ResourcesDocument()
    workers: Annotated[tuple[int, int] | None, BeforeValidator(_range)] = None
    priority: Literal["low", "normal", "high", "urgent"] = "normal"
    deadline: Annotated[DeadlineDocument | None, _short_form("by")] = None
    checkpoint: Annotated[CheckpointDocument | None, BeforeValidator(_checkpoint_short_form)] = None
    data: DataDocument | None = None
    budget: Annotated[Dollars, Field(gt=0)] | None = None
    application: Name | None = None
    work: _Positive | None = None
    speeds: dict[str, _Positive] = Field(default_factory=dict)
    folder: Annotated[str, BeforeValidator(_path)] = ""
    environment: dict[_Variable, _Text] = Field(default_factory=dict)
    passed: Annotated[tuple[str, ...], _names(_VARIABLE)] = Field((), alias="pass")
    retries: Annotated[Whole, Field(ge=0, le=_MOST)] = 0

    @model_validator(mode="after")
    def _even_workers(self) -> Self:
        self._gang()
        return self

    def _gang(self) -> tuple[float, int, int]:
        """Accelerators of each worker, the fewest and the most workers."""
        each, together = self.resources.gang()
        few, many = self.workers or together or (1, 1)
        if self.workers and together:
            least, most = together
            if least % few or most % many or least // few != most // many:
                given = f"{least}" if least == most else f"{least}..{most}"
                shown = f"{few}" if few == many else f"{few}..{many}"
                raise ValueError(
                    f"workers is {shown}; {given} accelerators cannot be shared evenly by so many"
                )
            each = float(least // few)
        return each, few, many

    def submission(self) -> Submission:
        """The job without an id, and how it is started."""
        gpus, least, most = self._gang()
        resources, deadline, data = self.resources, self.deadline, self.data
        job = Job(
            id="",
            workload=Workload(
                name=self.name,
                kind=self.kind,
                tenant=self.tenant,
                priority=int(Priority[self.priority.upper()]),
                deadline=deadline.by if deadline else None,
                command=self.command,
            ),
            submitted=0.0,
            worker=Worker(gpus, resources.cpus, resources.memory, resources.accelerators[0]),
            least=least,
            most=most,
            hard=bool(deadline and deadline.hard),
            checkpoint=self.checkpoint.checkpoint() if self.checkpoint else None,
            data=DataSet(data.zone, data.size, data.nodes) if data else None,
            budget=self.budget,
            application=self.application or self.name,
            work=self.work,
            speeds={kind_of(kind): speed for kind, speed in self.speeds.items()},
        )
        return Submission(job, self.folder, self.environment, self.passed, self.retries)


def require_name(name: str, owner: str) -> str:
    """The name, if a job file could hold it; else a refusal that says of what (`owner`) it was to be."""
    if not _NAME.fullmatch(name):
        raise BadInputError(
            f'"{one_line(name):.60}" cannot be the name of {owner}; use letters, digits, dots and hyphens'
        )
    return name


def read_job_documents(path: Path, settings: Sequence[str] = ()) -> tuple[Any, ...]:
    """The documents of a file, checked; `settings` such as "resources.gpus=4" replace what is written there.

    Jobs run in the file's own folder, or in one that they name relative to it: folders become absolute.
    """
    base = path.absolute().parent
    documents = parse_documents(_content(path), str(path), settings)
    jobs = submissions(documents, str(path))
    return tuple({**d, "folder": str(base / job.folder)} for d, job in zip(documents, jobs, strict=True))


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInputError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise BadInputError(f"{path} is a folder; name a YAML file with a job in it") from None
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path} cannot be read: {one_line(str(error))}") from None


def parse_documents(content: str, where: str, settings: Sequence[str] = ()) -> tuple[Any, ...]:
    """The documents of a file's content, unchecked, with `settings` in place of what is written there."""
    import yaml

    try:
        documents = [document for document in yaml.safe_load_all(content) if document is not None]
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadInputError(f"{where} cannot be read as YAML: {one_line(str(error))}") from None
    if not documents:
        raise BadInputError(f"{where} has no job; it needs at least {_EXAMPLE}")
    return tuple(_with_settings(each, settings) for each in documents)


def submissions(documents: Sequence[Any], where: str) -> tuple[Submission, ...]:
    """The jobs that documents describe, every value checked."""
    count = len(documents)
    places = [where if count == 1 else f"{where}, job {number}" for number in range(1, count + 1)]
    return tuple(
        validate(JobDocument, each, place).submission() for place, each in zip(places, documents, strict=True)
    )


def _with_settings(document: Any, settings: Sequence[str]) -> Any:
    """A copy of the document with values replaced or added by their paths."""
    import yaml

    if not isinstance(document, dict):
        return document
    document = dict(document)
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals or not path.strip():
            raise BadInputError(f'"{one_line(setting):.60}" sets nothing; write it like resources.gpus=4')
        *folders, last = path.strip().split(".")
        inner = document
        for folder in folders:
            inner[folder] = dict(inner[folder]) if isinstance(inner.get(folder), dict) else {}
            inner = inner[folder]
        try:
            inner[last] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise BadInputError(f'"{one_line(setting):.60}" has a value that is not YAML') from None
    return document
