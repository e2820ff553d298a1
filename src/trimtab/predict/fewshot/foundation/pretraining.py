"""Learn what ships: one encoder over all data sets, and one predictor per data set that may lean on it.

The encoder is trained once on everything and once without each group of applications, so that whatever is
said of it (errors, shares in a blend, ranges, distances) comes from applications that it has not seen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trimtab.predict.fewshot import (
    BUNDLED_FUNCTIONS,
    Array,
    Corpus,
    Curves,
    FittedCurves,
    FittedOurs,
    ForestSettings,
    Leaves,
    Ours,
    functions,
    gavel,
    multicloud,
    scout,
    steps,
)
from trimtab.predict.fewshot.encoder import (
    ENCODER,
    CrossFitted,
    Encoder,
    EncoderSettings,
    Neighbourhood,
    Shared,
    application_folds,
    leaving_out,
    quantiles,
    train,
    unseen_distances,
)
from trimtab.predict.fewshot.foundation.acquainted import Acquainted
from trimtab.predict.fewshot.foundation.model import Foundation
from trimtab.predict.fewshot.foundation.workers import LOCAL, check_engine, workers

_WITH_LEAVES = ("functions",)  # the forest is made for sizes of one thing, and takes most of the file

# Told what was finished, and which part of the whole that makes.
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Pretraining:
    """How much is spent on learning."""

    # Fewer and smaller trees than in the bench: the file has to stay small.
    forest: ForestSettings = field(default_factory=lambda: ForestSettings(trees=40, smallest_leaf=12))
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
    corpora = _read(chosen.functions, data)
    lessons = _lessons(corpora, chosen)
    told = _Told(progress, len(lessons) + len(corpora))
    with workers(engine) as at_work:
        learned = at_work.each(_learn, lessons, lambda at: told(lessons[at].name))
        members = _members(lessons, learned)
        tasks = [_Fitting(corpus, chosen, members[corpus.name]) for corpus in corpora]
        fitted = at_work.each(_fit, tasks, lambda at: told(tasks[at].corpus.name))
    shared = _shared(corpora, chosen, learned)
    predictors = {
        corpus.name: Acquainted.of(each, shared) for corpus, each in zip(corpora, fitted, strict=True)
    }
    return Foundation(predictors, {"seed": seed, "sources": _sources(corpora)})


def _seeded(settings: Pretraining, seed: int) -> Pretraining:
    return replace(
        settings, forest=replace(settings.forest, seed=seed), encoder=replace(settings.encoder, seed=seed)
    )


def _read(own: Path, data: Path | None) -> list[Corpus]:
    """Runs that completed, of the data sets whose licence lets what was learned from them ship."""
    corpora = [functions.read(own).completed()]
    if data is not None:
        corpora += [
            multicloud.read(data, completed_only=True),
            scout.read(data).completed(),
            steps.read(data).completed(),
            _called(gavel.read(data), "gavel"),
        ]
    return corpora


def _called(corpus: Corpus, environment: str) -> Corpus:
    """The same under a name that tells users where they are."""
    return Corpus(corpus.name, tuple(replace(case, environment=environment) for case in corpus.cases))


@dataclass(frozen=True, slots=True)
class _Lesson:
    """An encoder to train, without the applications that are left out."""

    name: str
    corpora: Sequence[Corpus]
    settings: EncoderSettings
    without: dict[str, frozenset[str]]


@dataclass(frozen=True, slots=True, eq=False)
class _Learned:
    """The encoder, and how far from all that it has seen the applications are that it has not."""

    encoder: Encoder
    unseen: dict[str, tuple[Array, ...]]


def _lessons(corpora: Sequence[Corpus], chosen: Pretraining) -> list[_Lesson]:
    """The whole first, then each group left out."""
    groups = {corpus.name: application_folds(corpus, chosen.folds, chosen.encoder.seed) for corpus in corpora}
    left_out = [{name: each[fold] for name, each in groups.items()} for fold in range(chosen.folds)]
    found = [_Lesson("encoder", corpora, chosen.encoder, {})]
    for number, without in enumerate(left_out, 1):
        found.append(_Lesson(f"encoder without group {number}", corpora, chosen.encoder, without))
    return found


def _learn(lesson: _Lesson) -> _Learned:
    encoder = train(leaving_out(lesson.corpora, lesson.without), lesson.settings)
    return _Learned(encoder, unseen_distances(encoder, lesson.corpora, lesson.without, lesson.settings.seed))


def _members(lessons: Sequence[_Lesson], learned: Sequence[_Learned]) -> dict[str, CrossFitted]:
    """The encoder as a member of every data set's blend."""
    whole, *parts = zip(lessons, learned, strict=True)
    return {
        corpus.name: CrossFitted(
            whole[1].encoder, tuple((lesson.without[corpus.name], each.encoder) for lesson, each in parts)
        )
        for corpus in whole[0].corpora
    }


@dataclass(frozen=True, slots=True)
class _Fitting:
    """A data set's predictor to fit and test."""

    corpus: Corpus
    settings: Pretraining
    encoder: CrossFitted


def _fit(task: _Fitting) -> FittedOurs:
    chosen = task.settings
    leaves = (Leaves(chosen.forest),) if task.corpus.name in _WITH_LEAVES else ()
    plain = Ours(seed=chosen.encoder.seed, episodes=chosen.episodes, folds=chosen.folds)
    # Among the rules too, so that the encoder alone goes through the same test.
    blend = replace(plain, members=(Curves(), *leaves, task.encoder), rules=(*plain.rules, task.encoder))
    return _used(blend.fit(task.corpus.cases))


def _used(fitted: FittedOurs) -> FittedOurs:
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


def _shared(corpora: Sequence[Corpus], chosen: Pretraining, learned: Sequence[_Learned]) -> Shared:
    whole, *parts = learned
    known = Neighbourhood.of(whole.encoder, corpora, chosen.encoder.seed)
    return Shared(whole.encoder, replace(known, unseen=quantiles([part.unseen for part in parts])))


def _sources(corpora: Sequence[Corpus]) -> dict[str, dict[str, object]]:
    return {
        corpus.name: {
            "applications": len(corpus.applications),
            "cases": len(corpus.cases),
            "environments": list(corpus.environments),
        }
        for corpus in corpora
    }


class _Told:
    """Counts what is finished."""

    def __init__(self, progress: Progress, pieces: int) -> None:
        self._progress, self._pieces, self._finished = progress, pieces, 0

    def __call__(self, what: str) -> None:
        self._finished += 1
        self._progress(what, self._finished / self._pieces)
