"""Runs a pipeline's stages one after the other, each in its own control group, and keeps their profiles.

A stage is not run again while its command, the files it names and the stages before it are unchanged.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from trimtab.core import BadInputError, Profile, Workload, format_duration, one_line
from trimtab.kernel import thread_waits, tree
from trimtab.observe import Interrupts, ProfilerSettings, Progress, load_profile, profile, save_profile
from trimtab.pipelines.pipeline import Content, Pipeline, PipelineStage

_WAITED = "its threads waited for a free core "
_NOTEWORTHY = 0.1  # share of a stage's time
_LITTLE_WAITING = 0.05  # share of the time, normal on a quiet machine
_NEAR = 4  # samples on either side


class ContentionCorrection:
    """Samples the processes started since construction, to correct a profile for other load on the machine.

    Memory: the kernel charges a page of a file to the first group that reads it, so a stage that runs after
    others have used the same libraries is not charged for them; in a fresh container it is. So the resident
    memory of its largest process counts; only the largest, because processes of one stage share such pages.

    CPU: a stage that waits for busy cores uses less than it would. So the time in which its threads were
    runnable but did not run counts as used, up to all cores.
    """

    def __init__(self) -> None:
        self._before = {process.pid for process in tree(os.getpid())}
        self._resident: list[float] = []
        self._waits: dict[tuple[int, int], float] = {}
        self._waited: list[float] = []  # seconds in all, at each look

    def look(self) -> None:
        """Take one sample."""
        started = [process for process in tree(os.getpid()) if process.pid not in self._before]
        self._resident.append(max((process.memory for process in started), default=0.0))
        for process in started:
            for thread, seconds in thread_waits(process.pid).items():
                self._waits[process.pid, thread] = seconds
        self._waited.append(sum(self._waits.values()))

    def corrected(self, profile: Profile) -> Profile:
        """The profile as if the machine had no other load; a note says if its threads waited much."""
        series = profile.series
        widths = [after - before for before, after in pairwise((0.0, *series.time))]
        waited = [after - before for before, after in pairwise((0.0, *self._waited))]
        cpu = _demanded(series.cpu, _filled(waited, widths), widths, profile.host.cores)
        memory = [max(pair) for pair in zip(series.memory, _filled(self._resident, widths), strict=True)]
        notes = profile.notes
        if sum(waited) > _NOTEWORTHY * profile.window:
            notes = (*notes, f"{_WAITED}{format_duration(sum(waited))}")
        return replace(profile, series=replace(series, cpu=tuple(cpu), memory=tuple(memory)), notes=notes)


def waiting(profile: Profile) -> str:
    """The profile's note about waiting; empty if it has none."""
    return next((note for note in profile.notes if note.startswith(_WAITED)), "")


def _demanded(
    used: Sequence[float], waited: Sequence[float], widths: Sequence[float], cores: float
) -> list[float]:
    """Cores used, plus the waiting where there was much.

    The kernel accounts for waiting when it ends, so only sums over a few samples are meaningful.
    """
    demanded = []
    for number, alone in enumerate(used):
        near = slice(max(0, number - _NEAR), number + _NEAR + 1)
        seconds, waiting = sum(widths[near]), sum(waited[near])
        worked = sum(cpu * width for cpu, width in zip(used[near], widths[near], strict=True))
        crowded = waiting > _LITTLE_WAITING * seconds
        demanded.append(min((worked + waiting) / seconds, max(cores, alone)) if crowded else alone)
    return demanded


def _filled(values: Sequence[float], samples: Sequence[float]) -> list[float]:
    """Values cut or zero-padded to the number of samples: the last sample is taken after the end."""
    return [*values[: len(samples)], *[0.0] * (len(samples) - len(values))]


# The profiler starts commands in Trimtab's folder; a stage has its own, and its output goes to files.
_START = 'cd "$1" && exec >"$2" 2>"$3" && shift 3 && exec "$@"'


class InterruptedRunError(Exception):
    """A signal ended a stage. `number` is the signal's, `done` are the stages profiled before."""

    def __init__(self, stage: str, number: int, done: Sequence[str]) -> None:
        super().__init__(stage)
        self.stage = stage
        self.number = number
        self.done = tuple(done)


@dataclass(frozen=True, slots=True)
class ProfilingSettings:
    """`window` is the longest time of a stage and `every` the sampling interval, in seconds.

    `again` profiles stages anew that have a profile; without `run`, stages without a profile are refused.
    """

    window: float = 3600.0
    every: float = 0.1
    again: bool = False
    run: bool = True


@dataclass(frozen=True, slots=True)
class StageProgress:
    """A stage that is starting (`progress` is None) or running, and its number in the pipeline."""

    stage: str
    number: int
    stages: int
    progress: Progress | None = None


def profile_stages(
    pipeline: Pipeline,
    work: Path,
    given: Mapping[str, Profile] | None = None,
    settings: ProfilingSettings | None = None,
    report: Callable[[StageProgress], None] = lambda progress: None,
) -> tuple[dict[str, Profile], tuple[str, ...]]:
    """Every stage's profile: given, stored earlier, or made now; and the names of stages profiled now."""
    return _Runner(pipeline, work, given or {}, settings or ProfilingSettings(), report).run()


class _Runner:
    """One pass over a pipeline."""

    def __init__(
        self,
        pipeline: Pipeline,
        work: Path,
        given: Mapping[str, Profile],
        settings: ProfilingSettings,
        report: Callable[[StageProgress], None],
    ) -> None:
        self._pipeline, self._work, self._given = pipeline, work, given
        self._settings, self._report = settings, report
        self._made = {path: stage.name for stage in pipeline.stages for path in stage.outputs}
        self._needed = {path for stage in pipeline.stages for path in self._reads(stage)}
        self._ran: list[str] = []

    def run(self) -> tuple[dict[str, Profile], tuple[str, ...]]:
        for name in self._given:
            self._pipeline.stage(name)
        for stage in self._pipeline.stages:  # before any stage runs
            if stage.name in self._given or self._stored(stage) is not None:
                continue
            why = "--no-run was given" if not self._settings.run else _obstacle(stage)
            if why:
                raise BadInputError(
                    f'stage "{stage.name}" has no profile and is not run here: {why}; give one that was made '
                    f"with trimtab profile, like --profile {stage.name}=profile.json"
                )
        profiles: dict[str, Profile] = {}
        for number, stage in enumerate(self._pipeline.stages, 1):
            stored = self._given.get(stage.name) or self._stored(stage)
            profiles[stage.name] = stored or self._run(stage, number)
            if stored is None:
                self._ran.append(stage.name)
        return profiles, tuple(self._ran)

    def _reads(self, stage: PipelineStage) -> set[Path]:
        words = {part.path for word in stage.command for part in word if isinstance(part, Content)}
        return words | set(stage.inputs)

    def _stored(self, stage: PipelineStage) -> Profile | None:
        """The profile of an earlier run that is still valid."""
        if self._settings.again or any(name in self._ran for name in stage.after):
            return None
        if any(path in self._needed and not path.exists() for path in stage.outputs):
            return None
        try:
            command = _words(stage)
        except OSError:
            return None
        path = self._profile_path(stage, command)
        if not path.exists() or _newest(stage, command, self._made) > path.stat().st_mtime:
            return None
        try:
            return load_profile(path)
        except BadInputError:
            return None  # damaged or of another version: the stage runs again

    def _run(self, stage: PipelineStage, number: int) -> Profile:
        count = len(self._pipeline.stages)
        self._report(StageProgress(stage.name, number, count))
        for path in sorted(self._reads(stage)):
            if not path.exists():
                maker = self._made.get(path)
                why = "which no stage makes and which does not exist"
                if maker is not None:
                    why = f'which "{maker}" makes, but that was not run here'
                raise BadInputError(f'stage "{stage.name}" needs {path}, {why}')
        for path in stage.outputs:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                raise BadInputError(f'stage "{stage.name}" cannot write {path}: {why}') from None
        command = _words(stage)
        folder = self._work / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        output, errors = (folder / f"{_plain(stage.name)}.{suffix}" for suffix in ("out", "err"))
        variables = [f"{name}={value}" for name, value in stage.environment.items()]
        words = ["env", *variables, *command] if variables else command
        launched = ["sh", "-c", _START, "stage", str(stage.folder), str(output), str(errors), *words]
        settings = ProfilerSettings(
            self._settings.window, self._settings.every, f"{self._pipeline.name}/{stage.name}", full=True
        )
        caught, correction = Interrupts(), ContentionCorrection()

        def look(progress: Progress) -> None:
            correction.look()
            self._report(StageProgress(stage.name, number, count, progress))

        raw = profile(launched, settings, look, caught)
        if caught.received is not None:
            raise InterruptedRunError(stage.name, caught.received, self._ran)
        self._check(stage, raw, errors)
        workload = Workload(raw.workload.name, command=command)
        corrected = replace(correction.corrected(raw), workload=workload)
        save_profile(corrected, self._profile_path(stage, command))
        return corrected

    def _check(self, stage: PipelineStage, raw: Profile, errors: Path) -> None:
        if raw.ended != "exited":
            window = format_duration(self._settings.window)
            raise BadInputError(
                f'stage "{stage.name}" took longer than {window} and was stopped; allow more with --for'
            )
        if raw.status != 0:
            lines = errors.read_text("utf-8", errors="replace").splitlines() if errors.exists() else []
            last = one_line(next((line for line in reversed(lines) if line.strip()), "it wrote no error"))
            raise BadInputError(
                f'stage "{stage.name}" failed with exit status {raw.status}: {last[:300]}'
                f" (its standard error is in {errors})"
            )
        for path in stage.outputs:
            if path in self._needed and not path.exists():
                raise BadInputError(f'stage "{stage.name}" succeeded, but did not write {path}')

    def _profile_path(self, stage: PipelineStage, command: Sequence[str]) -> Path:
        identity = json.dumps([command, str(stage.folder), dict(stage.environment)], sort_keys=True)
        digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
        return self._work / "profiles" / f"{_plain(stage.name)}-{digest}.json"


def _obstacle(stage: PipelineStage) -> str:
    """The reason why a stage cannot run on this machine; empty if none is known."""
    if stage.obstacle:
        return stage.obstacle
    program = stage.command[0][0] if len(stage.command[0]) == 1 else None
    if isinstance(program, str):
        local = stage.folder / program if "/" in program else None
        path = stage.environment.get("PATH", os.environ.get("PATH"))
        if shutil.which(str(local or program), path=path) is None:
            return f'there is no program "{one_line(program):.60}" on this machine'
    return ""


def _words(stage: PipelineStage) -> tuple[str, ...]:
    """The command with the contents of earlier stages' files filled in."""

    def text(part: str | Content) -> str:
        if isinstance(part, str):
            return part
        return part.path.read_text("utf-8", errors="replace").replace("\0", "").strip()

    return tuple("".join(text(part) for part in word) for word in stage.command)


def _newest(stage: PipelineStage, command: Sequence[str], made: Mapping[Path, str]) -> float:
    """The latest modification time of the files that a stage reads and no stage makes: scripts, data."""
    named = {stage.folder / word for text in command for word in text.split() if len(word) < 256}
    times = [0.0]
    for path in {*named, *stage.inputs} - made.keys():
        try:
            if path.is_file():
                times.append(path.stat().st_mtime)
        except (OSError, ValueError):
            continue
    return max(times)


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)
