"""Job files: YAML with one document per job, checked field by field; see docs/reference/job-files.md."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from trimtab.core import (
    DEFAULT_LOG,
    DEFAULT_PROCESSES,
    DEFAULT_TENANT,
    GIB,
    SCHEMA_NAME,
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
    format_bytes,
    names_a_secret,
    one_line,
    parse_bytes,
    quantity,
    validate,
)
from trimtab.schedule.job import Checkpoint, Job, JobData, Priority, Submission, Worker, kind_of

_MOST = 1_000_000  # workers, accelerators, attempts, CPUs
_MOST_UNITS = 1e18  # of work, or of work per second
_MOST_BYTES = 2.0**60
_MOST_DOLLARS = 1e12
_MOST_SECONDS = 100 * 365.25 * 86400.0
_LEAST_SHARE = 0.01  # of an accelerator or a CPU
_LONGEST_WORD = 128 * 1024 - 1  # bytes of an argument or a variable that Linux passes to a process
_LONGEST_COMMAND = 1024 * 1024  # bytes, of all arguments or all variables
_LONGEST_PATH = 4095
_MOST_NAMES = 1000
_LARGEST_FILE = 1024 * 1024  # bytes
_MOST_VALUES = 100_000  # of a document, with each alias counted as often as it is used
_MOST_LOG = 10 * GIB
_EXAMPLE = "name: resnet50, command: python train.py"
_NAME = re.compile(r"[\w.-]{1,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KIND = re.compile(r"([\w. -]{1,63})(?::([1-9]\d{0,5}))?")


def _gpus(value: Any) -> float | tuple[int, int] | None:
    """None for 0, a share of one accelerator (0.25), or fewest and most (8, 2..16)."""
    if isinstance(value, float) and not (value > 1 and value.is_integer()):
        return _share(value)
    return None if value == 0 and not isinstance(value, bool) else _range(value)


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not _LEAST_SHARE <= value <= 1:
        raise ValueError(f"it should be a number from {_LEAST_SHARE:g} to 1")
    return float(value)


def _whole(value: Any) -> Any:
    """8 for 8.0, which JSON does not tell apart; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _range(value: Any) -> tuple[int, int]:
    written = "" if value is True else str(_whole(value))
    match = re.fullmatch(r"(\d{1,9})\s*(?:\.\.\s*(\d{1,9}))?", written)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
    if not 1 <= low <= high <= _MOST:
        raise ValueError("it should be a whole number such as 8, or a range such as 2..16")
    return low, high


def _accelerators(value: Any) -> tuple[tuple[str, ...], int]:
    """Kinds, and their number if that is written too (a100:8), else 0."""
    listed = value if isinstance(value, list) else [value]
    if len(listed) > _MOST_NAMES:
        raise ValueError(f"it should name at most {_MOST_NAMES} kinds")
    matches = [_KIND.fullmatch(kind.strip()) if isinstance(kind, str) else None for kind in listed]
    kinds = [match for match in matches if match is not None]
    if len(kinds) < len(matches):
        raise ValueError(
            "it should be a kind such as a100, a list such as [a100, v100], or kinds with a count: a100:8"
        )
    counts = {int(match[2] or 0) for match in kinds}
    if len(counts) > 1:
        raise ValueError("the count should be the same for every kind")
    return tuple(dict.fromkeys(kind_of(match[1]) for match in kinds)), counts.pop() if counts else 0


_Counted = Annotated[int, Field(ge=1, le=_MOST)]
_Attempts = Annotated[int, Field(ge=0, le=_MOST)]
# Ranges in the schema: by their digits the second number is the larger one.
_WrittenRange = Annotated[
    str,
    Field(pattern=r"^([1-9][0-9]{0,5}|[1-9]\.\.[1-9][0-9]{1,5}|[1-9][0-9]{1,2}\.\.[1-9][0-9]{3,5})$"),
]
_OneKind = Annotated[str, Field(pattern=SCHEMA_NAME)]
_CountedKind = Annotated[str, Field(pattern=SCHEMA_NAME.replace("$", ":[1-9][0-9]{0,5}$"))]
_Kinds = Annotated[list[_OneKind], Field(max_length=_MOST_NAMES)]


def _names(pattern: re.Pattern[str]) -> BeforeValidator:
    """Validator of a name or a list of names."""
    written = Annotated[str, Field(pattern=SCHEMA_NAME if pattern is _NAME else f"^{pattern.pattern}$")]
    listed_names = Annotated[list[written], Field(max_length=_MOST_NAMES)]

    def check(value: Any) -> tuple[str, ...]:
        listed = value if isinstance(value, list) else [value]
        if not all(isinstance(name, str) and pattern.fullmatch(name) for name in listed):
            raise ValueError("it should be a list of names, such as [A, B]")
        if len(listed) > _MOST_NAMES:
            raise ValueError(f"it should have at most {_MOST_NAMES} names")
        return tuple(dict.fromkeys(listed))

    return BeforeValidator(check, json_schema_input_type=written | listed_names)


def _variable(value: Any) -> str:
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        raise ValueError("it should be the name of a variable: letters, digits and underscores")
    if names_a_secret(value):
        raise ValueError(
            f"it looks like a secret, and its value would be written to the store; write pass: [{value}], "
            "and the scheduler takes the value from its own environment"
        )
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str | int | float) or not _is_argument(str(value)):
        raise ValueError("it should be text of at most 128 KiB; put it in quotes")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _path(value: Any) -> str:
    if not isinstance(value, str) or not _is_argument(value) or len(value.encode()) > _LONGEST_PATH:
        raise ValueError("it should be a path such as /home/me/project")
    return value


def _is_argument(text: str) -> bool:
    """Whether Linux can pass a text to a process, and a database can keep it."""
    try:
        return "\0" not in text and len(text.encode()) <= _LONGEST_WORD
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _passable(words: tuple[str, ...]) -> tuple[str, ...]:
    if not all(map(_is_argument, words)):
        raise ValueError("its words should be text of at most 128 KiB each")
    if sum(len(word.encode()) for word in words) > _LONGEST_COMMAND:
        raise ValueError("it should be at most 1 MiB long")
    return words


def _kind_name(value: Any) -> str:
    if not isinstance(value, str) or not _KIND.fullmatch(value.strip()):
        raise ValueError("it should be a kind of accelerator such as a100")
    return value


_Variable = Annotated[str, BeforeValidator(_variable)]
_Text = Annotated[str, BeforeValidator(_text, json_schema_input_type=str | float)]
_Fraction = Annotated[float, Field(ge=_LEAST_SHARE, le=1)]
_Share = Annotated[float | None, BeforeValidator(_share, json_schema_input_type=_Fraction)]
_Range = Annotated[
    tuple[int, int] | None, BeforeValidator(_range, json_schema_input_type=_Counted | _WrittenRange)
]
_LogSize = Annotated[
    float, quantity(parse_bytes, "an amount such as 512MB or 16GiB", "[1-9][0-9]{0,3} ?Mi?B|[1-9] ?Gi?B")
]
_Signal = Annotated[str, Field(pattern="^(SIG)?(USR1|USR2|TERM|INT|HUP)$")]
_Duration = Annotated[Seconds, Field(gt=0, le=_MOST_SECONDS)]
_Amount = Annotated[Bytes, Field(gt=0, le=_MOST_BYTES)]
_Units = Annotated[float, quantity(float, "a number above 0"), Field(gt=0, le=_MOST_UNITS)]
_Cpus = Annotated[float, quantity(float, "a number above 0"), Field(ge=_LEAST_SHARE, le=_MOST)]
_JobCommand = Annotated[Command, AfterValidator(_passable)]


class _Document(StrictModel):
    """A model that ignores fields that are null."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, Mapping) else data


# Conditions between fields, for the JSON schema; the validators of the models check them.
_WITHOUT_COUNT = {"anyOf": [{"type": "string", "pattern": "^[^:]*$"}, {"type": "array"}]}
_ONE_COUNT: list[Any] = [
    {"properties": {"gpus": False, "share": False}},
    {"properties": {"share": False, "accelerators": _WITHOUT_COUNT}},
    {"properties": {"gpus": False, "accelerators": _WITHOUT_COUNT}},
]
_ONE_WAY: list[Any] = [{"properties": {"signal": False}}, {"properties": {"command": False}}]
_EVEN_WORKERS: list[Any] = [
    {"properties": {"workers": False}},
    {"properties": {"resources": {"properties": {"gpus": False, "accelerators": _WITHOUT_COUNT}}}},
]


class ResourcesDocument(_Document):
    """`resources` of a job: accelerators of all workers together, CPUs and memory of each."""

    model_config = ConfigDict(json_schema_extra={"anyOf": _ONE_COUNT})

    gpus: Annotated[
        float | tuple[int, int] | None,
        BeforeValidator(_gpus, json_schema_input_type=_Counted | _Fraction | _WrittenRange),
    ] = None
    share: _Share = None
    accelerators: Annotated[
        tuple[tuple[str, ...], int],
        BeforeValidator(_accelerators, json_schema_input_type=_OneKind | _CountedKind | _Kinds),
    ] = ((), 0)
    cpus: _Cpus = 1.0
    memory: _Amount = 0.0
    processes: Annotated[
        Whole,
        BeforeValidator(_whole, json_schema_input_type=Annotated[int, Field(ge=1, le=_MOST)]),
        Field(ge=1, le=_MOST),
    ] = DEFAULT_PROCESSES

    @model_validator(mode="after")
    def _one_count(self) -> Self:
        kinds, count = self.accelerators
        named: list[str] = [name for name in ("gpus", "share") if name in self.model_fields_set]
        named += ["accelerators"] if count else []
        if len(named) > 1:
            raise ValueError(f"{' and '.join(named)} each give a number of accelerators; keep one of them")
        if kinds and "gpus" in named and self.gpus is None:
            raise ValueError("gpus is 0 but accelerators names kinds; gpus must then be at least 1")
        return self

    def gang(self) -> tuple[float, tuple[int, int] | None]:
        """Accelerators of one worker, and the range of accelerators of all workers if it is given."""
        kinds, count = self.accelerators
        if isinstance(self.gpus, tuple) or count:
            return 1.0, self.gpus if isinstance(self.gpus, tuple) else (count, count)
        return self.share or self.gpus or (1.0 if kinds else 0.0), None


class DeadlineDocument(_Document):
    """`deadline` of a job: a duration from its submission; a job that cannot meet a hard one is refused."""

    by: _Duration
    hard: Annotated[bool, Field(strict=True)] = False


class CheckpointDocument(_Document):
    """`checkpoint` of a job: see `Checkpoint`."""

    model_config = ConfigDict(json_schema_extra={"anyOf": _ONE_WAY})

    signal: (
        Annotated[
            Literal["USR1", "USR2", "TERM", "INT", "HUP"],
            # USR1, usr1 and SIGUSR1 are one signal.
            BeforeValidator(
                lambda value: value.upper().removeprefix("SIG") if isinstance(value, str) else value
            ),
        ]
        | None
    ) = None
    command: _JobCommand = ()
    interval: _Duration | None = None
    seconds: _Duration = Checkpoint().seconds
    restart: _Duration = Checkpoint().restart

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.command and self.signal:
            raise ValueError("signal and command are two ways to save a checkpoint; keep one of them")
        return self

    def checkpoint(self) -> Checkpoint:
        """The checkpoint; without a command, the signal is USR1 unless another is given."""
        signal = None if self.command else self.signal or "USR1"
        return Checkpoint(signal, self.command, self.interval, self.seconds, self.restart)


class DataDocument(_Document):
    """`data` of a job: its zone and size, and nodes that hold a copy."""

    zone: Name | Literal[""] = ""
    size: _Amount
    nodes: Annotated[tuple[str, ...], _names(_NAME)] = ()


class JobDocument(_Document):
    """One job of a job file, and of a request to submit jobs."""

    model_config = ConfigDict(json_schema_extra={"anyOf": _EVEN_WORKERS})

    name: Name
    tenant: Name = DEFAULT_TENANT
    kind: Kind = Kind.TRAINING
    command: _JobCommand
    resources: ResourcesDocument = ResourcesDocument()
    workers: _Range = None
    priority: Literal["low", "normal", "high", "urgent"] = "normal"
    deadline: Annotated[
        DeadlineDocument | None,
        BeforeValidator(
            lambda value: value if isinstance(value, Mapping) else {"by": value},
            json_schema_input_type=DeadlineDocument | _Duration | None,
        ),
    ] = None
    checkpoint: Annotated[
        CheckpointDocument | None,
        BeforeValidator(
            lambda value: {"signal": value} if isinstance(value, str) else None if value is False else value,
            json_schema_input_type=CheckpointDocument | _Signal | Literal[False] | None,
        ),
    ] = None
    data: DataDocument | None = None
    budget: Annotated[Dollars, Field(gt=0, le=_MOST_DOLLARS)] | None = None
    application: Name | None = None
    work: _Units | None = None
    speeds: dict[Annotated[str, BeforeValidator(_kind_name)], _Units] = Field(
        default_factory=dict,
        max_length=_MOST_NAMES,
        json_schema_extra={"propertyNames": {"pattern": SCHEMA_NAME}},
    )
    folder: Annotated[str, BeforeValidator(_path)] = ""
    environment: dict[_Variable, _Text] = Field(
        default_factory=dict,
        max_length=_MOST_NAMES,
        json_schema_extra={"propertyNames": {"pattern": f"^{_VARIABLE.pattern}$"}},
    )
    passed: Annotated[tuple[str, ...], _names(_VARIABLE)] = Field((), alias="pass")
    retries: Annotated[
        Whole, BeforeValidator(_whole, json_schema_input_type=_Attempts), Field(ge=0, le=_MOST)
    ] = 0
    log: Annotated[_LogSize, Field(ge=64 * 1024, le=_MOST_LOG)] = DEFAULT_LOG
    preemptible: Annotated[bool, Field(strict=True)] | None = None

    @model_validator(mode="after")
    def _even_workers(self) -> Self:
        self._gang()
        return self

    @model_validator(mode="after")
    def _small_environment(self) -> Self:
        size = sum(len(name) + len(value.encode()) for name, value in self.environment.items())
        if size > _LONGEST_COMMAND:
            raise ValueError(f"environment has {format_bytes(size)}; it should be at most 1 MiB in all")
        return self

    def _gang(self) -> tuple[float, int, int]:
        """Accelerators of each worker, the fewest and the most workers."""
        per_worker, together = self.resources.gang()
        few, many = self.workers or together or (1, 1)
        if self.workers and together:
            least, most = together
            if least % few or most % many or least // few != most // many:
                gpus = f"{least}" if least == most else f"{least}..{most}"
                workers = f"{few}" if few == many else f"{few}..{many}"
                raise ValueError(
                    f"workers is {workers}, and {gpus} accelerators cannot be divided evenly among them"
                )
            per_worker = float(least // few)
        return per_worker, few, many

    def submission(self) -> Submission:
        """The job, without an id, with its folder, environment and retries."""
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
            worker=Worker(
                gpus, resources.cpus, resources.memory, resources.accelerators[0], resources.processes
            ),
            least=least,
            most=most,
            hard=bool(deadline and deadline.hard),
            checkpoint=self.checkpoint.checkpoint() if self.checkpoint else None,
            data=JobData(data.zone, data.size, data.nodes) if data else None,
            budget=self.budget,
            application=self.application or self.name,
            work=self.work,
            speeds={kind_of(kind): speed for kind, speed in self.speeds.items()},
            preemptible=self.preemptible,
        )
        return Submission(job, self.folder, self.environment, self.passed, self.retries, self.log)


def require_name(name: str, owner: str) -> str:
    """The name, if a job file may hold it; BadInputError names the `owner` of the name otherwise."""
    if not _NAME.fullmatch(name):
        raise BadInputError(
            f'"{one_line(name):.60}" cannot be the name of {owner}; use letters, digits, dots and hyphens'
        )
    return name


def read_job_documents(path: Path, settings: Sequence[str] = ()) -> tuple[Any, ...]:
    """The documents of a file, checked; `settings` such as "resources.gpus=4" replace values of the file.

    Jobs run in the file's own folder, or in one relative to it: folders become absolute.
    """
    base = path.absolute().parent
    documents = parse_documents(_content(path), str(path), settings)
    jobs = submissions(documents, str(path))
    return tuple({**d, "folder": str(base / job.folder)} for d, job in zip(documents, jobs, strict=True))


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        return content.decode()
    except FileNotFoundError:
        raise BadInputError(f"there is no file {path}; name a YAML file with a job in it") from None
    except IsADirectoryError:
        raise BadInputError(f"{path} is a folder; name a YAML file with a job in it") from None
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path} cannot be read: {one_line(str(error))}") from None


def parse_documents(content: str, where: str, settings: Sequence[str] = ()) -> tuple[Any, ...]:
    """The documents of a file's content, unchecked, with `settings` in place of values of the file."""
    import yaml

    if len(content.encode(errors="replace")) > _LARGEST_FILE:
        raise BadInputError(
            f"{where} is larger than {format_bytes(_LARGEST_FILE)}; name a YAML file with jobs"
        )
    try:
        documents = [document for document in yaml.safe_load_all(content) if document is not None]
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadInputError(f"{where} cannot be read as YAML: {one_line(str(error))}") from None
    if not documents:
        raise BadInputError(f"{where} has no job; it needs at least {_EXAMPLE}")
    for document in documents:
        if _count_values(document) > _MOST_VALUES:
            raise BadInputError(
                f"{where} has more than {_MOST_VALUES} values with aliases expanded; a job needs far fewer"
            )
    return tuple(_with_settings(document, settings) for document in documents)


def _count_values(document: Any) -> float:
    """The number of values in a document with its aliases expanded; infinite if it contains itself."""
    counts: dict[int, float] = {}

    def count(value: Any) -> float:
        if not isinstance(value, dict | list):
            return 1
        if id(value) not in counts:
            counts[id(value)] = math.inf  # until it is known: a value within itself has no end
            inner = (*value, *value.values()) if isinstance(value, dict) else value
            counts[id(value)] = 1 + sum(count(part) for part in inner)
        return counts[id(value)]

    return count(document)


def submissions(documents: Sequence[Any], where: str) -> tuple[Submission, ...]:
    """The jobs that documents describe, every value checked."""
    count = len(documents)
    places = [where if count == 1 else f"{where}, job {number}" for number in range(1, count + 1)]
    return tuple(
        validate(JobDocument, document, place).submission()
        for place, document in zip(places, documents, strict=True)
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
            raise BadInputError(f'"{one_line(setting):.60}" is not a setting; write it like resources.gpus=4')
        *folders, last = path.strip().split(".")
        inner = document
        for folder in folders:
            inner[folder] = dict(inner[folder]) if isinstance(inner.get(folder), dict) else {}
            inner = inner[folder]
        try:
            inner[last] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise BadInputError(
                f'"{one_line(setting):.60}" has a value that is not YAML; put it in quotes'
            ) from None
    return document
