"""Jobs from a YAML file: one document each, every value checked, nothing unknown passed over."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, Kind, Workload, names_a_secret, one_line, quoted
from trimtab.schedule.fields import VARIABLE, Fields, positive, text
from trimtab.schedule.job import Checkpoint, DataSet, Job, Priority, Submission, Worker, kind_of

_NAMES = (
    *("name", "tenant", "kind", "command", "resources", "workers", "priority", "deadline", "checkpoint"),
    *("data", "budget", "application", "work", "speeds", "folder", "environment", "pass", "retries"),
)
_RESOURCES = ("gpus", "accelerators", "share", "cpus", "memory")
_CHECKPOINT = ("signal", "command", "interval", "seconds", "restart")
_SIGNALS = ("USR1", "USR2", "TERM", "INT", "HUP")
_EXAMPLE = "name: resnet50, command: python train.py"


def read_job_file(path: Path, settings: Sequence[str] = ()) -> tuple[Submission, ...]:
    """The jobs of a file; `settings` such as "resources.gpus=4" take the place of what is written there.

    They run in the file's own folder, or one that they name from there. They have no ids yet.
    """
    base = path.absolute().parent
    jobs = parse_jobs(_content(path), str(path), settings)
    return tuple(replace(job, folder=str(base / job.folder)) for job in jobs)


def read_job_documents(path: Path, settings: Sequence[str] = ()) -> tuple[Any, ...]:
    """What a file says of each job, for who hands it in elsewhere; the folder is the file's own there too."""
    base = path.absolute().parent
    told = parse_documents(_content(path), str(path), settings)
    checked = submissions(told, str(path))
    return tuple({**d, "folder": str(base / job.folder)} for d, job in zip(told, checked, strict=True))


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInputError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise BadInputError(f"{path} is a folder; name a YAML file with a job in it") from None
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path} cannot be read: {one_line(str(error))}") from None


def parse_jobs(content: str, where: str, settings: Sequence[str] = ()) -> tuple[Submission, ...]:
    """The jobs of a file's content, which messages name by `where`."""
    return submissions(parse_documents(content, where, settings), where)


def parse_documents(content: str, where: str, settings: Sequence[str] = ()) -> tuple[Any, ...]:
    """What a file says of each job, not yet looked at; with `settings` in place of what is written there."""
    import yaml

    try:
        told = [document for document in yaml.safe_load_all(content) if document is not None]
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadInputError(f"{where} cannot be read as YAML: {one_line(str(error))}") from None
    if not told:
        raise BadInputError(f"{where} has no job; it needs at least {_EXAMPLE}")
    return tuple(_set(each, settings) for each in told)


def submissions(documents: Sequence[Any], where: str) -> tuple[Submission, ...]:
    """The jobs that documents describe, every value checked."""
    count = len(documents)
    places = [where if count == 1 else f"{where}, job {number}" for number in range(1, count + 1)]
    return tuple(_submission(place, each) for place, each in zip(places, documents, strict=True))


def _set(told: Any, settings: Sequence[str]) -> Any:
    """What was written, with values replaced or added by their paths."""
    import yaml

    if not isinstance(told, dict):
        return told
    told = dict(told)
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals or not path.strip():
            raise BadInputError(f'"{one_line(setting):.60}" sets nothing; write it like resources.gpus=4')
        *folders, last = path.strip().split(".")
        inner = told
        for folder in folders:
            inner[folder] = dict(inner[folder]) if isinstance(inner.get(folder), dict) else {}
            inner = inner[folder]
        try:
            inner[last] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise BadInputError(f'"{one_line(setting):.60}" has a value that is not YAML') from None
    return told


def _submission(where: str, told: Any) -> Submission:
    fields = Fields(where, "", told, _NAMES, _EXAMPLE)
    name = fields.name("name")
    worker, least, most = _gang(fields)
    deadline, hard = _deadline(fields)
    workload = Workload(
        name=name,
        kind=Kind(fields.one_of("kind", [kind.value for kind in Kind], Kind.TRAINING.value)),
        tenant=fields.name("tenant", "default"),
        priority=_priority(fields),
        deadline=deadline,
        command=_command(fields),
    )
    job = Job(
        id="",
        workload=workload,
        submitted=0.0,
        worker=worker,
        least=least,
        most=most,
        hard=hard,
        checkpoint=_checkpoint(fields),
        data=_data(fields),
        budget=fields.dollars("budget", 0.0) if "budget" in fields else None,
        application=fields.name("application", name),
        work=fields.number("work", 0.0) if "work" in fields else None,
        speeds={kind_of(kind): speed for kind, speed in fields.table("speeds", positive).items()},
    )
    return Submission(
        job=job,
        folder=_folder(fields),
        environment=_environment(fields),
        passed=fields.names("pass", variables=True),
        retries=fields.count("retries", 0),
    )


def _command(fields: Fields) -> tuple[str, ...]:
    if "command" not in fields:
        raise fields.missing("command", "give what is to be run, such as python train.py")
    return fields.words("command")


def _gang(fields: Fields) -> tuple[Worker, int, int]:
    """What each worker needs, and how many there are at least and at most."""
    asked = fields.inner("resources", _RESOURCES, "gpus: 8, memory: 16GiB")
    kinds, counted = _kinds(asked)
    given = [name for name in ("gpus", "share") if name in asked] + (["accelerators"] if counted else [])
    if len(given) > 1:
        raise asked.refuse(given[0], f"{given[1]} says how many as well; keep one of the two")
    each, least, most = 1.0 if kinds else 0.0, 1, 1
    if "share" in asked or isinstance(asked.value("gpus"), float):
        each = asked.number(given[0], 0.0, most=1.0)
        given = []
    elif asked.value("gpus") == 0:
        if kinds:
            raise asked.refuse("gpus", "accelerators names kinds, so at least 1 is needed")
        given = []
    elif given:
        each = 1.0
        least, most = asked.range("gpus") if "gpus" in asked else (counted, counted)
    if "workers" in fields:
        each, least, most = _dealt(fields, least, most) if given else (each, *fields.range("workers"))
    worker = Worker(
        gpus=each,
        cpus=asked.number("cpus", 1.0),
        memory=asked.bytes("memory", 0.0),
        accelerators=kinds,
    )
    return worker, least, most


def _dealt(fields: Fields, least: int, most: int) -> tuple[float, int, int]:
    """Accelerators of all workers together, dealt out among so many."""
    few, many = fields.range("workers")
    if least % few or most % many or least // few != most // many:
        given = f"{least}" if least == most else f"{least}..{most}"
        raise fields.refuse("workers", f"{given} accelerators cannot be dealt out evenly among so many")
    return float(least // few), few, many


def _kinds(asked: Fields) -> tuple[tuple[str, ...], int]:
    """Kinds of accelerator, and how many of them where that stands beside: a100:8."""
    value = asked.value("accelerators")
    listed = [value] if isinstance(value, str) else value if value is not None else []
    right = "it should be a kind such as a100, a list such as [a100, v100], or kinds with a count: a100:8"
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise asked.refuse("accelerators", right)
    kinds, counts = list[str](), set[int]()
    for each in listed:
        found = re.fullmatch(r"([\w. -]{1,63})(?::([1-9]\d{0,5}))?", each.strip())
        if found is None:
            raise asked.refuse("accelerators", right)
        kinds.append(kind_of(found[1]))
        counts.add(int(found[2] or 0))
    if len(counts) > 1:
        raise asked.refuse("accelerators", "the count should be the same for every kind")
    return tuple(dict.fromkeys(kinds)), counts.pop() if counts else 0


def _priority(fields: Fields) -> int:
    names = [priority.name.lower() for priority in Priority]
    return int(Priority[fields.one_of("priority", names, "normal").upper()])


def _deadline(fields: Fields) -> tuple[float | None, bool]:
    if "deadline" not in fields:
        return None, False
    if not isinstance(fields.value("deadline"), dict):
        return fields.seconds("deadline", 0.0), False
    inner = fields.inner("deadline", ("by", "hard"), "by: 6h, hard: true")
    if "by" not in inner:
        raise inner.missing("by", "give a duration from now on, such as 6h")
    if "hard" in inner and not isinstance(inner.value("hard"), bool):
        raise inner.refuse("hard", "it should be true or false")
    return inner.seconds("by", 0.0), bool(inner.value("hard"))


def _checkpoint(fields: Fields) -> Checkpoint | None:
    told = fields.value("checkpoint")
    if told is None or told is False:
        return None
    if isinstance(told, str):
        return Checkpoint(signal=_signal(fields, "checkpoint"))
    inner = fields.inner("checkpoint", _CHECKPOINT, "signal: USR1, seconds: 30")
    command = inner.words("command") if "command" in inner else ()
    if command and "signal" in inner:
        raise inner.refuse("signal", "a command is given as well; keep one of the two")
    usual = Checkpoint()
    return Checkpoint(
        signal=None if command else _signal(inner, "signal"),
        command=command,
        interval=inner.seconds("interval", 0.0) if "interval" in inner else None,
        seconds=inner.seconds("seconds", usual.seconds),
        restart=inner.seconds("restart", usual.restart),
    )


def _signal(fields: Fields, name: str) -> str:
    """USR1, usr1 and SIGUSR1 are the same."""
    told = fields.value(name)
    short = told.upper().removeprefix("SIG") if isinstance(told, str) else told or "USR1"
    if short not in _SIGNALS:
        raise fields.refuse(name, f"it should be one of {', '.join(_SIGNALS)}")
    return str(short)


def _data(fields: Fields) -> DataSet | None:
    if "data" not in fields:
        return None
    inner = fields.inner("data", ("zone", "size", "nodes"), "zone: us-east-1a, size: 2TB")
    if "size" not in inner:
        raise inner.missing("size", "say how much there is, such as 2TB")
    return DataSet(inner.name("zone", ""), inner.bytes("size", 0.0), inner.names("nodes"))


def _folder(fields: Fields) -> str:
    value = fields.value("folder") or ""
    if not isinstance(value, str) or "\0" in value:
        raise fields.refuse("folder", "it should be a path such as /home/me/project")
    return value


def _environment(fields: Fields) -> dict[str, str]:
    told = fields.table("environment", text)
    for name in told:
        if not VARIABLE.fullmatch(name):
            raise BadInputError(
                f"{fields.at('environment')} has {quoted(one_line(name)):.40}, which is not the name of a "
                f"variable; use letters, digits and underscores"
            )
        if names_a_secret(name):
            raise BadInputError(
                f"{fields.at('environment')}.{name} looks like a secret, and what stands here is kept in "
                f"the store; write pass: [{name}], and the scheduler's own environment is asked for it"
            )
    return told
