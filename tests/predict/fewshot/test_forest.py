import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import MissingDependencyError
from trimtab.predict.fewshot import ForestSettings
from trimtab.predict.fewshot.forest import Forest

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
    np.savez(tmp_path / "forest.npz", **forest.arrays())
    with np.load(tmp_path / "forest.npz", allow_pickle=False) as kept:
        back = Forest.from_arrays(kept)
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
    with pytest.raises(MissingDependencyError, match=r"scikit-learn; pip install 'trimtab\[learn\]'"):
        Forest.fit(*examples, ForestSettings(trees=2))
    assert np.isfinite(forest.samples(examples[0])).all(), "predicting takes NumPy alone"
