"""Pretraining of the shipped weights: one encoder over all data sets, and one predictor per data set.

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
from trimtab.predict.fewshot.blend import MEMBERS, Blend, FittedBlend
from trimtab.predict.fewshot.case import Array, Corpus
from trimtab.predict.fewshot.curves import FittedCurves
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
# Where Ray stores the address of a cluster started here.
_STARTED_HERE = Path("/tmp/ray/ray_current_cluster")  # nosec B108 # Ray's choice; its owner is checked
_PATIENCE = 10.0  # s, for a connection to an address
_THREADS = "OMP_NUM_THREADS"

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def check_engine(engine: str) -> None:
    """Refuse an unknown engine, and a cluster without Ray."""
    if engine != LOCAL and not (engine.startswith(_RAY) and engine != _RAY):
        raise BadInputError(
            f'"{engine:.60}" is not an engine to learn on; choose {LOCAL}, {_RAY}HOST:PORT or {_RAY}{_AUTO}'
        )
    if engine.startswith(_RAY):
        _ray()


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
def workers(engine: str = LOCAL) -> Iterator[TaskPool]:
    """Processes or a cluster to work on; processes end, and the cluster is left, when the block does."""
    check_engine(engine)
    with _processes() if engine == LOCAL else _cluster(engine) as pool:
        yield pool


@contextmanager
def _processes() -> Iterator[TaskPool]:
    """One process per CPU, each with one thread; on the way out, however it is, all are ended."""
    # Spawned processes inherit the variable before they load anything.
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    # Ctrl-C is for the parent process.
    ignore_interrupts = (signal.SIGINT, signal.SIG_IGN)
    try:
        with get_context("spawn").Pool(os.cpu_count() or 1, signal.signal, ignore_interrupts) as pool:
            yield TaskPool(lambda work, tasks: pool.imap_unordered(_numbered, _numbers(work, tasks)))
    finally:
        os.environ.pop(_THREADS)
        if before is not None:
            os.environ[_THREADS] = before


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
        waiting = [remote.remote(task) for task in _numbers(work, tasks)]
        try:
            while waiting:
                finished, waiting = ray.wait(waiting)
                yield from ray.get(finished)
        finally:
            for task in waiting:
                ray.cancel(task, force=True)

    try:
        yield TaskPool(start)
    finally:
        ray.shutdown()


_Numbered = tuple[Callable[..., Any], int, Any]


def _numbers(work: Callable[..., Any], tasks: Sequence[Any]) -> list[_Numbered]:
    return [(work, number, task) for number, task in enumerate(tasks)]


def _numbered(task: _Numbered) -> tuple[int, Any]:
    work, number, argument = task
    return number, work(argument)


def _listening(engine: str) -> str:
    """The cluster's address, after a trial connection: Ray itself would try for minutes."""
    address = engine
    if engine == _RAY + _AUTO:
        address = os.environ.get("RAY_ADDRESS", "") or _started_here()
        if not address:
            raise ConnectionError("none was started on this machine, and RAY_ADDRESS is not set")
    host, _, port = address.removeprefix(_RAY).rpartition(":")
    if not host or not port.isdigit():
        raise ConnectionError(f"{address} is not a host and a port")
    with socket.create_connection((host, int(port)), timeout=_PATIENCE):
        return address


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingDependencyError("learning on a cluster needs Ray; pip install 'trimtab[ray]'") from None
    return ray


def _started_here() -> str:
    """Address stored by this user or root: anybody can write there, and must not be given code to run."""
    try:
        with _STARTED_HERE.open(encoding="utf-8") as note:
            trusted = os.fstat(note.fileno()).st_uid in (0, os.geteuid())
            return note.read().strip() if trusted else ""
    except OSError:
        return ""


_WITH_FOREST = ("functions",)  # the forest suits sizes of one application, and takes most of the file

# Called with the name of a finished part, and the share of all parts that are finished.
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
    progress: Progress = lambda name, part: None,
    engine: str = LOCAL,
    settings: Pretraining | None = None,
) -> Foundation:
    """Train on the functions that come with Trimtab and, where `data` is given, on the data sets in there.

    Deterministic by seed, whichever engine does the work.
    """
    check_engine(engine)
    chosen = settings or Pretraining()
    chosen = replace(
        chosen, forest=replace(chosen.forest, seed=seed), encoder=replace(chosen.encoder, seed=seed)
    )
    corpora = [read_functions(chosen.functions).completed()]
    if data is not None:
        # Completed runs of the data sets whose licence lets weights that were trained on them ship.
        gavel = [replace(case, environment="gavel") for case in read_gavel(data).cases]  # a name users know
        corpora += [
            read_multicloud(data, completed_only=True),
            read_scout(data).completed(),
            read_steps(data).completed(),
            Corpus("gavel", tuple(gavel)),
        ]
    groups = {corpus.name: application_folds(corpus, chosen.folds, seed) for corpus in corpora}
    encoder_tasks = [_EncoderTask("encoder", corpora, chosen.encoder, {})] + [
        _EncoderTask(
            f"encoder without group {fold + 1}",
            corpora,
            chosen.encoder,
            {name: parts[fold] for name, parts in groups.items()},
        )
        for fold in range(chosen.folds)
    ]
    names = [task.name for task in encoder_tasks] + [corpus.name for corpus in corpora]
    finished = iter(range(1, len(names) + 1))
    with workers(engine) as pool:
        trained = pool.each(
            _train_encoder, encoder_tasks, lambda at: progress(names[at], next(finished) / len(names))
        )
        complete, *parts = trained
        predictor_tasks = [
            _PredictorTask(
                corpus,
                chosen,
                CrossFitted(
                    complete.encoder,
                    tuple(
                        (task.without[corpus.name], part.encoder)
                        for task, part in zip(encoder_tasks[1:], parts, strict=True)
                    ),
                ),
            )
            for corpus in corpora
        ]
        fitted = pool.each(
            _fit_predictor,
            predictor_tasks,
            lambda at: progress(names[len(encoder_tasks) + at], next(finished) / len(names)),
        )
    known = Neighbourhood.of(complete.encoder, corpora, seed)
    unseen = distance_quantiles([part.unseen for part in parts])
    shared = SharedEncoder(complete.encoder, replace(known, unseen=unseen))
    predictors = {
        corpus.name: replace(blend, shared=shared) for corpus, blend in zip(corpora, fitted, strict=True)
    }
    sources = {
        corpus.name: {
            "applications": len(corpus.applications),
            "cases": len(corpus.cases),
            "environments": list(corpus.environments),
        }
        for corpus in corpora
    }
    return Foundation(predictors, {"seed": seed, "sources": sources})


@dataclass(frozen=True, slots=True)
class _EncoderTask:
    """An encoder to train, without the applications that are left out."""

    name: str
    corpora: Sequence[Corpus]
    settings: EncoderSettings
    without: dict[str, frozenset[str]]


@dataclass(frozen=True, slots=True, eq=False)
class _TrainedEncoder:
    """The encoder, and the distances of left-out applications from its training data."""

    encoder: Encoder
    unseen: dict[str, tuple[Array, ...]]


def _train_encoder(task: _EncoderTask) -> _TrainedEncoder:
    encoder = train(leaving_out(task.corpora, task.without), task.settings)
    return _TrainedEncoder(encoder, unseen_distances(encoder, task.corpora, task.without, task.settings.seed))


@dataclass(frozen=True, slots=True)
class _PredictorTask:
    """A data set's predictor to fit and test."""

    corpus: Corpus
    settings: Pretraining
    encoder: CrossFitted


def _fit_predictor(task: _PredictorTask) -> FittedBlend:
    chosen = task.settings
    forest = (ForestPredictor(chosen.forest),) if task.corpus.name in _WITH_FOREST else ()
    others = (member for name, member in MEMBERS.items() if name != "forest")
    plain = Blend(seed=chosen.encoder.seed, episodes=chosen.episodes, folds=chosen.folds)
    # Among the rules too, so that the encoder alone goes through the same test.
    blend = replace(plain, members=(*others, *forest, task.encoder), rules=(*plain.rules, task.encoder))
    fitted = blend.fit(task.corpus.cases)
    # Members without a share are dropped, but for the curves; the encoder is no rule.
    used = [
        (member, share)
        for member, share in zip(fitted.members, fitted.shares, strict=True)
        if share > 0 or isinstance(member, FittedCurves)
    ]
    return replace(
        fitted,
        members=tuple(member for member, _ in used),
        shares=tuple(share for _, share in used),
        rules={name: rule for name, rule in fitted.rules.items() if name != ENCODER},
    )
