"""Runs a pipeline's stages one after the other, each in a group of its own, and keeps their profiles.

A stage is not run again while its command, the files it names and the stages before it are what they were.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from pathlib import Path

from trimtab.core import BadInputError, Profile, Workload, format_duration, one_line
from trimtab.kernel import thread_waits, tree
from trimtab.observe import Interrupts, ProfilerSettings, Progress, load_profile, profile, save_profile
from trimtab.pipelines.pipeline import Content, Pipeline, PipelineStage

_WAITED = "its threads waited for a free core "
_WORTH_TELLING = 0.1  # of a stage's time
_LITTLE_WAITING = 0.05  # of the time; as much is there on a quiet machine too
_NEAR = 4  # samples on either side


class Alone:
    """Looks again and again at the processes that this one has started since.

    Memory: the kernel charges a page of a file to whoever read it first, so a stage that runs after others
    have used the same libraries is charged for none of them; in a fresh container it is. So what its largest
    process has resident counts; only the largest, because processes of one stage share such pages.

    CPU: a stage that waits for cores which others have uses less than it would. So the time that its threads
    were ready to run and did not counts as used, up to all cores there are.
    """

    def __init__(self) -> None:
        self._before = {found.pid for found in tree(os.getpid())}
        self._resident: list[float] = []
        self._waits: dict[tuple[int, int], float] = {}
        self._waited: list[float] = []  # seconds in all, at each look

    def look(self) -> None:
        """Note how things are now."""
        started = [found for found in tree(os.getpid()) if found.pid not in self._before]
        self._resident.append(max((found.memory for found in started), default=0.0))
        for found in started:
            for thread, seconds in thread_waits(found.pid).items():
                self._waits[found.pid, thread] = seconds
        self._waited.append(sum(self._waits.values()))

    def corrected(self, profile: Profile) -> Profile:
        """The profile as if nobody else had been there; a note says where that made a difference."""
        series = profile.series
        widths = [after - before for before, after in pairwise((0.0, *series.time))]
        waited = [after - before for before, after in pairwise((0.0, *self._waited))]
        cpu = _wanted(series.cpu, _filled(waited, widths), widths, profile.host.cores)
        memory = [max(pair) for pair in zip(series.memory, _filled(self._resident, widths), strict=True)]
        worth_telling = sum(waited) > _WORTH_TELLING * profile.window
        return replace(
            profile,
            series=replace(series, cpu=tuple(cpu), memory=tuple(memory)),
            notes=(*profile.notes, f"{_WAITED}{format_duration(sum(waited))}")
            if worth_telling
            else profile.notes,
        )


def waiting(profile: Profile) -> str:
    """The note about waiting in a profile; empty where it has none."""
    return next((note for note in profile.notes if note.startswith(_WAITED)), "")


def _wanted(
    used: Sequence[float], waited: Sequence[float], widths: Sequence[float], cores: float
) -> list[float]:
    """Cores used, or wanted where there was waiting.

    The kernel books time that was waited when the waiting ends, so sums over a few samples mean something and
    single ones do not.
    """
    wanted = []
    for number, alone in enumerate(used):
        near = slice(max(0, number - _NEAR), number + _NEAR + 1)
        seconds, waiting = sum(widths[near]), sum(waited[near])
        worked = sum(cpu * width for cpu, width in zip(used[near], widths[near], strict=True))
        crowded = waiting > _LITTLE_WAITING * seconds
        wanted.append(min((worked + waiting) / seconds, max(cores, alone)) if crowded else alone)
    return wanted


def _filled(seen: Sequence[float], samples: Sequence[float]) -> list[float]:
    """Values cut or zero-padded to the number of samples: the last sample is taken after the end."""
    short = seen[: len(samples)]
    return [each for each, _ in zip_longest(short, samples, fillvalue=0.0)]


# The profiler starts commands where Trimtab is; a stage has a folder, and its output goes to files.
_START = 'cd "$1" && exec >"$2" 2>"$3" && shift 3 && exec "$@"'


class InterruptedRunError(Exception):
    """A signal ended a stage. `number` is the signal's, `done` the stages whose profiles are kept."""

    def __init__(self, stage: str, number: int, done: Sequence[str]) -> None:
        super().__init__(stage)
        self.stage = stage
        self.number = number
        self.done = tuple(done)


@dataclass(frozen=True, slots=True)
class ProfilingSettings:
    """`window` is how long a stage may take, `every` how often it is looked at, in seconds.

    `again` profiles stages anew that have a profile; without `run` those that have none are refused.
    """

    window: float = 3600.0
    every: float = 0.1
    again: bool = False
    run: bool = True


@dataclass(frozen=True, slots=True)
class StageProgress:
    """A stage that is starting (`seen` is None) or running, and its number among those of the pipeline."""

    stage: str
    number: int
    stages: int
    seen: Progress | None = None


def profile_stages(
    pipeline: Pipeline,
    work: Path,
    given: Mapping[str, Profile] | None = None,
    settings: ProfilingSettings | None = None,
    tell: Callable[[StageProgress], None] = lambda progress: None,
) -> tuple[dict[str, Profile], tuple[str, ...]]:
    """Every stage's profile: given, kept, or made now; and the names of those that were made now."""
    return _Runner(pipeline, work, given or {}, settings or ProfilingSettings(), tell).run()


class _Runner:
    """One pass over a pipeline."""

    def __init__(
        self,
        pipeline: Pipeline,
        work: Path,
        given: Mapping[str, Profile],
        settings: ProfilingSettings,
        tell: Callable[[StageProgress], None],
    ) -> None:
        self._pipeline, self._work, self._given = pipeline, work, given
        self._settings, self._tell = settings, tell
        self._made = {path: stage.name for stage in pipeline.stages for path in stage.outputs}
        self._needed = {path for stage in pipeline.stages for path in self._reads(stage)}
        self._ran: list[str] = []

    def run(self) -> tuple[dict[str, Profile], tuple[str, ...]]:
        for name in self._given:
            self._pipeline.stage(name)
        self._refuse_what_cannot_run()
        profiles: dict[str, Profile] = {}
        for number, stage in enumerate(self._pipeline.stages, 1):
            found = self._given.get(stage.name) or self._kept(stage)
            if found is None:
                found = self._run(stage, number)
                self._ran.append(stage.name)
            profiles[stage.name] = found
        return profiles, tuple(self._ran)

    def _refuse_what_cannot_run(self) -> None:
        """Before anything runs: every stage without a profile must be able to."""
        for stage in self._pipeline.stages:
            if stage.name in self._given or self._kept(stage) is not None:
                continue
            why = "--no-run was given" if not self._settings.run else _obstacle(stage)
            if why:
                raise BadInputError(
                    f'stage "{stage.name}" has no profile and is not run here: {why}; give one that was made '
                    f"with trimtab profile, like --profile {stage.name}=profile.json"
                )

    def _reads(self, stage: PipelineStage) -> set[Path]:
        words = {part.path for word in stage.command for part in word if isinstance(part, Content)}
        return words | set(stage.inputs)

    def _kept(self, stage: PipelineStage) -> Profile | None:
        """The profile of an earlier run that still holds."""
        if self._settings.again or any(name in self._ran for name in stage.after):
            return None
        if any(path in self._needed and not path.exists() for path in stage.outputs):
            return None
        try:
            command = _words(stage)
        except OSError:
            return None
        path = self._profile_path(stage, command)
        if not path.exists():
            return None
        if _newest(stage, command, self._made) > path.stat().st_mtime:
            return None
        try:
            return load_profile(path)
        except BadInputError:
            return None  # damaged, or of another version: a run makes it anew

    def _run(self, stage: PipelineStage, number: int) -> Profile:
        count = len(self._pipeline.stages)
        self._tell(StageProgress(stage.name, number, count))
        self._check_inputs(stage)
        _make_folders(stage)
        command = _words(stage)
        logs = self._log(stage)
        settings = ProfilerSettings(
            self._settings.window, self._settings.every, f"{self._pipeline.name}/{stage.name}", full=True
        )
        caught, alone = Interrupts(), Alone()

        def look(progress: Progress) -> None:
            alone.look()
            self._tell(StageProgress(stage.name, number, count, progress))

        seen = profile(_started(stage, command, logs), settings, look, caught)
        if caught.received is not None:
            raise InterruptedRunError(stage.name, caught.received, self._ran)
        self._check(stage, seen, logs[1])
        seen = replace(alone.corrected(seen), workload=Workload(seen.workload.name, command=command))
        save_profile(seen, self._profile_path(stage, command))
        return seen

    def _check_inputs(self, stage: PipelineStage) -> None:
        for path in sorted(self._reads(stage)):
            if path.exists():
                continue
            maker = self._made.get(path)
            why = (
                f'which "{maker}" makes, but that was not run here'
                if maker is not None
                else "which no stage makes and which is not there"
            )
            raise BadInputError(f'stage "{stage.name}" needs {path}, {why}')

    def _check(self, stage: PipelineStage, seen: Profile, errors: Path) -> None:
        if seen.ended != "exited":
            window = format_duration(self._settings.window)
            raise BadInputError(
                f'stage "{stage.name}" took longer than {window} and was stopped; allow more with --for'
            )
        if seen.status != 0:
            raise BadInputError(
                f'stage "{stage.name}" failed with exit status {seen.status}: '
                f"{_last_line(errors) or 'it wrote no error'} (all of it is in {errors})"
            )
        for path in stage.outputs:
            if path in self._needed and not path.exists():
                raise BadInputError(f'stage "{stage.name}" ended well, but did not write {path}')

    def _log(self, stage: PipelineStage) -> tuple[Path, Path]:
        folder = self._work / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{_plain(stage.name)}.out", folder / f"{_plain(stage.name)}.err"

    def _profile_path(self, stage: PipelineStage, command: Sequence[str]) -> Path:
        identity = json.dumps([command, str(stage.folder), dict(stage.environment)], sort_keys=True)
        digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
        return self._work / "profiles" / f"{_plain(stage.name)}-{digest}.json"


def _obstacle(stage: PipelineStage) -> str:
    """Why a stage cannot run on this machine; empty where it can, as far as can be seen."""
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
    """The command with what earlier stages wrote filled in."""
    return tuple(
        "".join(part if isinstance(part, str) else _content(part.path) for part in word)
        for word in stage.command
    )


def _make_folders(stage: PipelineStage) -> None:
    for path in stage.outputs:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise BadInputError(f'stage "{stage.name}" cannot write {path}: {why}') from None


def _content(path: Path) -> str:
    return path.read_text("utf-8", errors="replace").replace("\0", "").strip()


def _started(stage: PipelineStage, command: Sequence[str], logs: tuple[Path, Path]) -> list[str]:
    variables = [f"{name}={value}" for name, value in stage.environment.items()]
    words = ["env", *variables, *command] if variables else list(command)
    return ["sh", "-c", _START, "stage", str(stage.folder), *map(str, logs), *words]


def _newest(stage: PipelineStage, command: Sequence[str], made: Mapping[Path, str]) -> float:
    """When the newest file that a stage reads, and no stage makes, was changed: scripts, data."""
    named = {stage.folder / word for text in command for word in text.split() if len(word) < 256}
    times = [0.0]
    for path in {*named, *stage.inputs} - made.keys():
        try:
            if path.is_file():
                times.append(path.stat().st_mtime)
        except (OSError, ValueError):
            continue
    return max(times)


def _last_line(path: Path) -> str:
    lines = path.read_text("utf-8", errors="replace").splitlines() if path.exists() else []
    return one_line(next((line for line in reversed(lines) if line.strip()), ""))[:300]


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)
