"""Pretraining of what ships: one encoder over all data sets, and one predictor per data set beside it.

The encoder is trained once on everything and once without each fold of applications, so that its errors,
shares in a blend, intervals and distances come from applications that it has not seen. The work is split over
processes of this machine, or over tasks of a Ray cluster.
"""

import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from trimtab.core import BadInputError, MissingDependencyError, NotFoundError
from trimtab.predict.fewshot.blend import Blend, FittedBlend
from trimtab.predict.fewshot.case import Array, Corpus
from trimtab.predict.fewshot.curves import Curves, FittedCurves
from trimtab.predict.fewshot.datasets import (
    BUNDLED_FUNCTIONS,
    read_functions,
    read_gavel,
    read_multicloud,
    read_scout,
    read_steps,
)
from trimtab.predict.fewshot.encoder import ENCODER, CrossFitted, Encoder, application_folds
from trimtab.predict.fewshot.encoder_training import EncoderSettings, leaving_out, train
from trimtab.predict.fewshot.forest import SHIPPED_FOREST, ForestPredictor, ForestSettings
from trimtab.predict.fewshot.foundation import Foundation
from trimtab.predict.fewshot.neighbourhood import (
    Neighbourhood,
    SharedEncoder,
    distance_quantiles,
    unseen_distances,
)

LOCAL = "local://"
_RAY = "ray://"
_AUTO = "auto"  # the cluster that this machine is part of
# Where Ray notes the address of one started here.
_STARTED_HERE = Path("/tmp/ray/ray_current_cluster")  # nosec B108 # Ray's choice; its owner is looked at
_PATIENCE = 10.0  # s, for somebody to listen at an address

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def check_engine(engine: str) -> None:
    """Refuse what is not an engine, before anything is done."""
    if engine != LOCAL and not (engine.startswith(_RAY) and engine != _RAY):
        raise BadInputError(
            f'"{engine:.60}" is no engine to learn on; there are {LOCAL}, {_RAY}HOST:PORT and {_RAY}{_AUTO}'
        )
    if engine.startswith(_RAY):
        _ray()


@contextmanager
def workers(engine: str = LOCAL) -> Iterator["TaskPool"]:
    """Where to work; processes end, and the cluster is left, when the block does."""
    check_engine(engine)
    with _processes() if engine == LOCAL else _cluster(engine) as found:
        yield found


class TaskPool:
    """Runs one function on many tasks; the results come in the order of the tasks."""

    def __init__(
        self, start: Callable[[Callable[..., Any], Sequence[Any]], Iterator[tuple[int, Any]]]
    ) -> None:
        self._start = start

    def each(
        self,
        work: Callable[[_Task], _Result],
        tasks: Sequence[_Task],
        done: Callable[[int], None] = lambda number: None,
    ) -> list[_Result]:
        """`done` is called with the number of each task as it ends."""
        results: dict[int, _Result] = {}
        for number, result in self._start(work, tasks):
            results[number] = result
            done(number)
        return [results[number] for number in range(len(tasks))]


@contextmanager
def _processes() -> Iterator[TaskPool]:
    """One process per CPU; on the way out, however it is, all are ended."""
    with _one_thread_each(), get_context("spawn").Pool(os.cpu_count() or 1, _leave_interrupts) as pool:

        def start(work: Callable[..., Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
            return pool.imap_unordered(_numbered, [(work, number, task) for number, task in enumerate(tasks)])

        yield TaskPool(start)


@contextmanager
def _cluster(engine: str) -> Iterator[TaskPool]:
    ray = _ray()
    try:
        address = _listening(engine)
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, logging_level="error")
    except Exception as error:
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise NotFoundError(f"no Ray cluster answers at {engine}: {why:.200}") from None

    def start(work: Callable[..., Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        remote = ray.remote(num_cpus=1)(_numbered)
        waiting = [remote.remote((work, number, task)) for number, task in enumerate(tasks)]
        try:
            while waiting:
                finished, waiting = ray.wait(waiting)
                yield from ray.get(finished)
        finally:
            for each in waiting:
                ray.cancel(each, force=True)

    try:
        yield TaskPool(start)
    finally:
        ray.shutdown()


def _listening(engine: str) -> str:
    """The cluster's address, once somebody listens there: Ray itself would try for minutes."""
    address = engine
    if engine == _RAY + _AUTO:
        address = os.environ.get("RAY_ADDRESS", "") or _started_here()
        if not address:
            raise ConnectionError("none was started on this machine, and RAY_ADDRESS names none")
    host, _, port = address.removeprefix(_RAY).rpartition(":")
    if not host or not port.isdigit():
        raise ConnectionError(f"{address} is not a host and a port")
    with socket.create_connection((host, int(port)), timeout=_PATIENCE):
        return address


def _numbered(given: tuple[Callable[..., Any], int, Any]) -> tuple[int, Any]:
    work, number, task = given
    return number, work(task)


def _leave_interrupts() -> None:
    """Ctrl-C is for the process that gave the work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Spawned processes inherit this before they load anything: there is one of them for each CPU already."""
    name = "OMP_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingDependencyError("learning on a cluster needs Ray; pip install 'trimtab[ray]'") from None
    return ray


def _started_here() -> str:
    """Address noted by this user or root: anybody can write there, and must not be given our code to run."""
    try:
        with _STARTED_HERE.open(encoding="utf-8") as note:
            trusted = os.fstat(note.fileno()).st_uid in (0, os.geteuid())
            return note.read().strip() if trusted else ""
    except OSError:
        return ""


_WITH_LEAVES = ("functions",)  # the forest is made for sizes of one thing, and takes most of the file

# Told what was finished, and which part of the whole that makes.
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Pretraining:
    """How much is spent on learning."""

    forest: ForestSettings = SHIPPED_FOREST
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    folds: int = 3  # groups of applications that are left out in turn
    episodes: int = 400  # that a data set's predictor is tested on
    functions: Path = BUNDLED_FUNCTIONS


def pretrain(
    data: Path | None,
    seed: int = 0,
    progress: Progress = lambda what, part: None,
    engine: str = LOCAL,
    settings: Pretraining | None = None,
) -> Foundation:
    """From the functions that come with Trimtab and, where `data` is given, from the data sets in there.

    The same for the same seed, whichever engine does the work.
    """
    check_engine(engine)
    chosen = _seeded(settings or Pretraining(), seed)
    corpora = _corpora(chosen.functions, data)
    lessons = _encoder_tasks(corpora, chosen)
    told = _ProgressCount(progress, len(lessons) + len(corpora))
    with workers(engine) as at_work:
        learned = at_work.each(_train_encoder, lessons, lambda at: told(lessons[at].name))
        members = _members(lessons, learned)
        tasks = [_PredictorTask(corpus, chosen, members[corpus.name]) for corpus in corpora]
        fitted = at_work.each(_fit_predictor, tasks, lambda at: told(tasks[at].corpus.name))
    shared = _shared(corpora, chosen, learned)
    predictors = {
        corpus.name: replace(each, shared=shared) for corpus, each in zip(corpora, fitted, strict=True)
    }
    return Foundation(predictors, {"seed": seed, "sources": _sources(corpora)})


def _seeded(settings: Pretraining, seed: int) -> Pretraining:
    return replace(
        settings, forest=replace(settings.forest, seed=seed), encoder=replace(settings.encoder, seed=seed)
    )


def _corpora(own: Path, data: Path | None) -> list[Corpus]:
    """Runs that completed, of the data sets whose licence lets what was learned from them ship."""
    corpora = [read_functions(own).completed()]
    if data is not None:
        corpora += [
            read_multicloud(data, completed_only=True),
            read_scout(data).completed(),
            read_steps(data).completed(),
            _called(read_gavel(data), "gavel"),
        ]
    return corpora


def _called(corpus: Corpus, environment: str) -> Corpus:
    """The data set with this environment, a name that users recognise."""
    return Corpus(corpus.name, tuple(replace(case, environment=environment) for case in corpus.cases))


@dataclass(frozen=True, slots=True)
class _EncoderTask:
    """An encoder to train, without the applications that are left out."""

    name: str
    corpora: Sequence[Corpus]
    settings: EncoderSettings
    without: dict[str, frozenset[str]]


@dataclass(frozen=True, slots=True, eq=False)
class _TrainedEncoder:
    """The encoder, and how far from all that it has seen the applications are that it has not."""

    encoder: Encoder
    unseen: dict[str, tuple[Array, ...]]


def _encoder_tasks(corpora: Sequence[Corpus], chosen: Pretraining) -> list[_EncoderTask]:
    """The whole first, then each group left out."""
    groups = {corpus.name: application_folds(corpus, chosen.folds, chosen.encoder.seed) for corpus in corpora}
    left_out = [{name: each[fold] for name, each in groups.items()} for fold in range(chosen.folds)]
    found = [_EncoderTask("encoder", corpora, chosen.encoder, {})]
    for number, without in enumerate(left_out, 1):
        found.append(_EncoderTask(f"encoder without group {number}", corpora, chosen.encoder, without))
    return found


def _train_encoder(lesson: _EncoderTask) -> _TrainedEncoder:
    encoder = train(leaving_out(lesson.corpora, lesson.without), lesson.settings)
    return _TrainedEncoder(
        encoder, unseen_distances(encoder, lesson.corpora, lesson.without, lesson.settings.seed)
    )


def _members(lessons: Sequence[_EncoderTask], learned: Sequence[_TrainedEncoder]) -> dict[str, CrossFitted]:
    """The encoder as a member of every data set's blend."""
    whole, *parts = zip(lessons, learned, strict=True)
    return {
        corpus.name: CrossFitted(
            whole[1].encoder, tuple((lesson.without[corpus.name], each.encoder) for lesson, each in parts)
        )
        for corpus in whole[0].corpora
    }


@dataclass(frozen=True, slots=True)
class _PredictorTask:
    """A data set's predictor to fit and test."""

    corpus: Corpus
    settings: Pretraining
    encoder: CrossFitted


def _fit_predictor(task: _PredictorTask) -> FittedBlend:
    chosen = task.settings
    leaves = (ForestPredictor(chosen.forest),) if task.corpus.name in _WITH_LEAVES else ()
    plain = Blend(seed=chosen.encoder.seed, episodes=chosen.episodes, folds=chosen.folds)
    # Among the rules too, so that the encoder alone goes through the same test.
    blend = replace(plain, members=(Curves(), *leaves, task.encoder), rules=(*plain.rules, task.encoder))
    return _used(blend.fit(task.corpus.cases))


def _used(fitted: FittedBlend) -> FittedBlend:
    """Without members that have no share, but for the curves; the encoder is no rule."""
    kept = [
        (member, share)
        for member, share in zip(fitted.members, fitted.shares, strict=True)
        if share > 0 or isinstance(member, FittedCurves)
    ]
    return replace(
        fitted,
        members=tuple(member for member, _ in kept),
        shares=tuple(share for _, share in kept),
        rules={name: rule for name, rule in fitted.rules.items() if name != ENCODER},
    )


def _shared(
    corpora: Sequence[Corpus], chosen: Pretraining, learned: Sequence[_TrainedEncoder]
) -> SharedEncoder:
    whole, *parts = learned
    known = Neighbourhood.of(whole.encoder, corpora, chosen.encoder.seed)
    return SharedEncoder(
        whole.encoder, replace(known, unseen=distance_quantiles([part.unseen for part in parts]))
    )


def _sources(corpora: Sequence[Corpus]) -> dict[str, dict[str, object]]:
    return {
        corpus.name: {
            "applications": len(corpus.applications),
            "cases": len(corpus.cases),
            "environments": list(corpus.environments),
        }
        for corpus in corpora
    }


class _ProgressCount:
    """Counts what is finished."""

    def __init__(self, progress: Progress, pieces: int) -> None:
        self._progress, self._pieces, self._finished = progress, pieces, 0

    def __call__(self, what: str) -> None:
        self._finished += 1
        self._progress(what, self._finished / self._pieces)
