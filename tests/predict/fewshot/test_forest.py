import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import BadInputError, MissingDependencyError, TrimtabError
from trimtab.predict.fewshot.case import METRICS, Case, metrics_table, settings_table
from trimtab.predict.fewshot.forest import (
    FEATURES,
    TRAVELS,
    FittedForestPredictor,
    Forest,
    ForestPredictor,
    ForestSettings,
    features,
)
from trimtab.predict.fewshot.rules import Stretch, stretched

Examples = tuple[np.ndarray, np.ndarray]
HALF = 2.0**-11  # relative error of a number of 16 bits


@pytest.fixture(autouse=True)
def _scikit_learn() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")


@pytest.fixture(scope="module")
def examples() -> Examples:
    """The label is the sign of the first feature, and some noise."""
    random = np.random.default_rng(0)
    features = random.normal(size=(300, 5))
    return features, np.sign(features[:, 0]) + 0.1 * random.normal(size=300)


@pytest.fixture(scope="module")
def forest(examples: Examples) -> Forest:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    return Forest.fit(*examples, ForestSettings(trees=8))


def test_it_learns_what_the_label_depends_on(forest: Forest) -> None:
    meant = forest.samples(np.array([[2.0, 0, 0, 0, 0], [-2.0, 0, 0, 0, 0]])).mean(axis=1)
    assert meant[0] > 0.7
    assert meant[1] < -0.7


def test_its_samples_show_how_far_the_examples_lie_apart() -> None:
    kind = np.arange(200) % 2
    labels = np.where(kind == 0, 0.01, 1.0) * np.random.default_rng(0).normal(size=200)
    fitted = Forest.fit(kind[:, None].astype(float), labels, ForestSettings(trees=4, features=1.0))
    sure, unsure = fitted.samples(np.array([[0.0], [1.0]])).std(axis=1)
    assert unsure == pytest.approx(1.0, rel=0.25)
    assert sure == pytest.approx(0.01, rel=0.25)


def test_every_tree_gives_as_many_samples(forest: Forest, examples: Examples) -> None:
    samples = forest.samples(examples[0][:7])
    assert samples.shape[0] == 7
    assert samples.shape[1] % 8 == 0
    assert samples.dtype == np.float64


def test_trees_grown_to_single_examples_remember_every_label() -> None:
    features = np.random.default_rng(0).permutation(64).astype(float)[:, None]
    labels = np.arange(64.0)
    grown = Forest.fit(features, labels, ForestSettings(trees=8, smallest_leaf=1, features=1.0))
    assert np.median(grown.samples(features), axis=1).tolist() == labels.tolist()


def test_kept_in_a_file_and_read_back_it_answers_the_same(
    forest: Forest, examples: Examples, tmp_path: Path
) -> None:
    np.savez(tmp_path / "forest.npz", **forest.to_weights())
    with np.load(tmp_path / "forest.npz", allow_pickle=False) as kept:
        back = Forest.from_weights(kept)
    np.testing.assert_array_equal(back.samples(examples[0]), forest.samples(examples[0]))


@settings(max_examples=25)
@given(st.data())
def test_samples_lie_within_the_labels(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 30))
    numbers = st.floats(-3.0, 3.0, width=32)
    labels = np.array(data.draw(st.lists(numbers, min_size=count, max_size=count)))
    features = np.array(data.draw(st.lists(st.tuples(numbers, numbers), min_size=count, max_size=count)))
    fitted = Forest.fit(features, labels, ForestSettings(trees=2, smallest_leaf=2))
    samples = fitted.samples(np.concatenate([features, [[-30.0, 30.0]]]))
    slack = HALF * np.abs(labels).max() + 1e-6
    assert (samples >= labels.min() - slack).all()
    assert (samples <= labels.max() + slack).all()


def test_constant_labels_are_answered_with(examples: Examples) -> None:
    fitted = Forest.fit(examples[0], np.full(300, 0.25), ForestSettings(trees=3))
    assert (fitted.samples(examples[0]) == 0.25).all()


def test_a_single_example_is_enough() -> None:
    fitted = Forest.fit(np.zeros((1, 2)), np.array([0.5]), ForestSettings(trees=3))
    assert (fitted.samples(np.array([[-1.0, 1.0], [0.0, 0.0]])) == 0.5).all()


def test_the_same_seed_grows_the_same_forest_and_another_another(examples: Examples, forest: Forest) -> None:
    again = Forest.fit(*examples, ForestSettings(trees=8))
    other = Forest.fit(*examples, ForestSettings(trees=8, seed=1))
    np.testing.assert_array_equal(again.samples(examples[0]), forest.samples(examples[0]))
    assert (other.samples(examples[0]) != forest.samples(examples[0])).any()


def test_rows_are_answered_one_by_one_as_together(forest: Forest, examples: Examples) -> None:
    together = forest.samples(examples[0][:5])
    for row in range(5):
        np.testing.assert_array_equal(forest.samples(examples[0][row : row + 1])[0], together[row])


def test_without_scikit_learn_the_sentence_says_how_to_get_it(
    examples: Examples, forest: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sklearn", "sklearn.ensemble"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=r"trimtab\[learn\]"):
        Forest.fit(*examples, ForestSettings(trees=2))
    assert np.isfinite(forest.samples(examples[0])).all(), "predicting takes NumPy alone"


MakeCase = Callable[..., Case]
SHARES = np.array([0.07, 0.14, 0.29, 0.58, 1.2])
BYTES = 2.0 ** np.array([27.0, 28.0, 29.1, 30.0, 31.3])
SMALL = ForestPredictor(ForestSettings(trees=8), sets_per_case=8)
PLATFORM = ("throttled", "involuntary_switches", "probe_seconds")


def _function(make_case: MakeCase, idle: float, work: float, punished: bool, **fields: object) -> Case:
    """One that is punished takes half as long again on anything but the largest size, and shows it."""
    seconds = idle + work / np.minimum(SHARES, 1.0)
    slower = seconds * np.where(punished & (SHARES < 1.0), 1.5, 1.0)
    metrics = metrics_table(
        5,
        cpu_user=work / slower,
        throttled=0.4 if punished else 0.0,
        involuntary_switches=50.0 if punished else 1.0,
        probe_seconds=0.006 if punished else 0.004,
    )
    given: dict[str, object] = {
        "settings": settings_table(5, memory_bytes=BYTES, cpus=SHARES),
        "metrics": metrics,
    }
    return make_case(slower, **{**given, **fields})


def _functions(make_case: MakeCase, count: int, seed: int) -> list[Case]:
    random = np.random.default_rng(seed)
    return [
        _function(make_case, *np.exp(random.normal(size=2)), punished=i % 2 == 0, application=f"f{seed}-{i}")
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def fitted(make_case: MakeCase) -> FittedForestPredictor:
    return SMALL.fit(_functions(make_case, 24, seed=0))


def _column(name: str, table: np.ndarray) -> np.ndarray:
    return table[:, FEATURES.index(name)]


def _features(case: Case, *known: int) -> np.ndarray:
    rows = np.array(known)
    return features(case, rows, stretched(case, rows))


def test_every_feature_has_one_name_and_one_column(make_case: MakeCase) -> None:
    case = _function(make_case, 1.0, 2.0, punished=False)
    assert len(set(FEATURES)) == len(FEATURES) == len(TRAVELS)
    for known in ((0,), (1, 3), (0, 2, 4)):
        assert _features(case, *known).shape == (5, len(FEATURES))


def test_a_column_holds_what_its_name_says(make_case: MakeCase) -> None:
    case = _function(make_case, 1.0, 2.0, punished=True)
    table, rule = _features(case, 1, 4), stretched(case, np.array([1, 4]))
    np.testing.assert_allclose(_column("target memory", table), np.log2(BYTES))
    np.testing.assert_allclose(_column("target cpus", table), np.log2(SHARES))
    np.testing.assert_allclose(_column("rule", table), rule)
    assert _column("known runs", table).tolist() == [2.0] * 5
    assert _column("nearest throttled", table).tolist() == [0.4] * 5
    np.testing.assert_allclose(_column("nearest size", table), np.log2(BYTES)[[1, 1, 1, 4, 4]])
    np.testing.assert_allclose(_column("second size", table), np.log2(BYTES)[[4, 4, 4, 1, 1]])
    np.testing.assert_allclose(_column("shortest known", table), np.log(case.seconds[4]) - rule)
    np.testing.assert_allclose(_column("line", table)[[1, 4]], np.log(case.seconds[[1, 4]]) - rule[[1, 4]])


def test_what_a_platform_does_to_functions_does_not_travel() -> None:
    stays = {name for name, travels in zip(FEATURES, TRAVELS, strict=True) if not travels}
    assert stays == {
        f"{rank} {name}" for rank in ("nearest", "second") for name in (*PLATFORM, "idle unless throttled")
    }


@settings(max_examples=50)
@given(data=st.data())
def test_no_feature_is_ever_missing(make_case: MakeCase, data: st.DataObject) -> None:
    known = sorted(data.draw(st.sets(st.integers(0, 4), min_size=1, max_size=3)))
    unknown_metrics = data.draw(st.sets(st.sampled_from(METRICS)))
    unknown_settings = data.draw(st.sets(st.sampled_from(("memory_bytes", "cpus"))))
    metrics = {name: data.draw(st.floats(1e-9, 1e9)) for name in METRICS if name not in unknown_metrics}
    sizes = {"memory_bytes": BYTES, "cpus": SHARES}
    case = make_case(
        data.draw(st.lists(st.floats(1e-3, 1e4), min_size=5, max_size=5)),
        metrics=metrics_table(5, **metrics),
        settings=settings_table(5, **{k: v for k, v in sizes.items() if k not in unknown_settings}),
    )
    assert np.isfinite(_features(case.known_at(np.array(known)), *known)).all()


def test_the_order_of_the_known_makes_no_difference(make_case: MakeCase) -> None:
    case = _function(make_case, 1.0, 2.0, punished=True)
    np.testing.assert_allclose(_features(case, 0, 3), _features(case, 3, 0))


def test_the_order_of_the_configurations_makes_no_difference(make_case: MakeCase) -> None:
    case = _function(make_case, 1.0, 2.0, punished=True)
    backwards = case.only([4, 3, 2, 1, 0])
    np.testing.assert_allclose(_features(backwards, 0, 2, 4)[::-1], _features(case, 0, 2, 4))


@pytest.mark.parametrize("known", [[0], [1, 3], [0, 2, 4]], ids=str)
def test_it_learns_where_the_rule_is_wrong(
    make_case: MakeCase, fitted: FittedForestPredictor, known: list[int]
) -> None:
    rows = np.array(known)
    hidden = np.setdiff1d(np.arange(5), rows)
    errors = {"leaves": 0.0, "rule": 0.0}
    for case in _functions(make_case, 8, seed=1):
        shown = case.known_at(rows)
        for name, result in (
            ("leaves", fitted.predict(shown, rows)),
            ("rule", Stretch().predict(shown, rows)),
        ):
            errors[name] += float(np.abs(result / case.seconds - 1.0)[hidden].mean())
    assert errors["leaves"] < 0.7 * errors["rule"]


def test_functions_that_obey_the_rule_are_answered_by_it(make_case: MakeCase) -> None:
    training = [_function(make_case, 1.0, 0.1 * 2.0**i, False, application=f"f{i}") for i in range(6)]
    case, known = _function(make_case, 1.0, 0.7, False, application="new"), np.array([1])
    np.testing.assert_allclose(SMALL.fit(training).predict(case, known), case.seconds, rtol=1e-3)


def test_no_answer_is_further_from_the_rule_than_a_lesson_may_be(make_case: MakeCase) -> None:
    wild = make_case((1.0, 1e9, 1.0, 1e9, 1.0), settings=_function(make_case, 1.0, 1.0, False).settings)
    rule = stretched(wild, np.array([0]))
    spread = SMALL.fit([wild]).spread(wild, np.array([0]))
    assert (np.abs(spread.log_seconds - rule[:, None]) <= 3.0 + 1e-9).all()


def test_in_an_unknown_environment_the_plainer_forest_answers(
    make_case: MakeCase, fitted: FittedForestPredictor
) -> None:
    known = np.array([1, 3])
    case = _function(make_case, 1.0, 2.0, punished=True)
    abroad = replace(case, environment="elsewhere")
    rule = stretched(case, known)
    plain = rule[:, None] + fitted.abroad.samples(features(case, known, rule)[:, TRAVELS])
    np.testing.assert_allclose(fitted.spread(abroad, known).log_seconds, np.sort(plain, axis=1))
    assert (fitted.spread(abroad, known).log_seconds != fitted.spread(case, known).log_seconds).any()


def test_the_plainer_forest_ignores_what_the_platform_did(
    make_case: MakeCase, fitted: FittedForestPredictor
) -> None:
    known = np.array([0, 2])
    case = _function(make_case, 0.5, 2.0, punished=True)
    metrics = case.metrics.copy()
    for name in PLATFORM:
        metrics[:, METRICS.index(name)] = 0.0
    spared = replace(case, metrics=metrics)
    assert (fitted.predict(spared, known) != fitted.predict(case, known)).any()
    abroad, spared_abroad = (replace(c, environment="elsewhere") for c in (case, spared))
    np.testing.assert_array_equal(fitted.predict(spared_abroad, known), fitted.predict(abroad, known))


@settings(max_examples=25)
@given(data=st.data())
def test_hidden_runs_are_never_read(
    make_case: MakeCase, fitted: FittedForestPredictor, data: st.DataObject
) -> None:
    case = replace(
        _function(make_case, 1.0, 2.0, punished=data.draw(st.booleans())),
        environment=data.draw(st.sampled_from(("lambda", "elsewhere"))),
    )
    known = np.array(sorted(data.draw(st.sets(st.integers(0, 4), min_size=1, max_size=3))))
    hidden = np.setdiff1d(np.arange(5), known)
    seconds, metrics, ok = case.seconds.copy(), case.metrics.copy(), case.ok.copy()
    times = st.lists(st.floats(1e-3, 1e4), min_size=len(hidden), max_size=len(hidden))
    seconds[hidden], metrics[hidden], ok[hidden] = data.draw(times), data.draw(st.floats(0.0, 1e6)), False
    changed = replace(case, seconds=seconds, metrics=metrics, ok=ok)
    np.testing.assert_array_equal(fitted.predict(case, known), fitted.predict(changed, known))
    np.testing.assert_array_equal(fitted.predict(case, known), fitted.predict(case.known_at(known), known))


def test_the_same_seed_gives_the_same_answers(make_case: MakeCase, fitted: FittedForestPredictor) -> None:
    again = SMALL.fit(_functions(make_case, 24, seed=0))
    case, known = _function(make_case, 1.0, 2.0, punished=True), np.array([1])
    np.testing.assert_array_equal(again.predict(case, known), fitted.predict(case, known))


def test_one_training_case_is_enough(make_case: MakeCase) -> None:
    case = _function(make_case, 1.0, 2.0, punished=False)
    result = SMALL.fit([case]).predict(case, np.array([2]))
    np.testing.assert_allclose(result, case.seconds, rtol=0.01)


def test_runs_without_a_time_are_left_out_of_the_lesson(make_case: MakeCase) -> None:
    case = _function(make_case, 1.0, 2.0, punished=False)
    gappy = replace(case, seconds=np.where(SHARES < 0.2, np.nan, case.seconds), ok=SHARES >= 0.2)
    nowhere = replace(case, seconds=np.full(5, np.nan), ok=np.zeros(5, dtype=bool))
    result = SMALL.fit([gappy, nowhere]).predict(case, np.array([2]))
    np.testing.assert_allclose(result, case.seconds, rtol=0.01)


def test_it_suits_a_thing_in_sizes_and_not_a_catalog_of_machines(make_case: MakeCase) -> None:
    few = make_case()
    many = Case(
        corpus="made up",
        application="sort",
        name="sort-0",
        environment="cloud",
        configurations=tuple(f"m{i}" for i in range(40)),
        settings=settings_table(40, cpus=np.arange(40.0) + 1),
        metrics=metrics_table(40),
        seconds=np.ones(40),
        ok=np.ones(40, dtype=bool),
    )
    assert SMALL.suits([few, few, many])
    assert not SMALL.suits([few, many, many])


def test_it_needs_a_known_run_and_a_case_to_learn_from(
    make_case: MakeCase, fitted: FittedForestPredictor
) -> None:
    with pytest.raises(BadInputError, match="no configuration"):
        fitted.predict(make_case(), np.array([], dtype=np.intp))
    with pytest.raises(BadInputError, match="leaves"):
        SMALL.fit([])


def test_cases_with_one_run_each_teach_nothing_and_it_says_so(make_case: MakeCase) -> None:
    with pytest.raises(TrimtabError):
        SMALL.fit([make_case((1.0,), application="a"), make_case((2.0,), application="b")])
