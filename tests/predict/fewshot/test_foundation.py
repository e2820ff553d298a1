import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from trimtab.core import NotFoundError, StorageError, TrimtabError
from trimtab.predict import Foundation, load_foundation, shipped_foundation
from trimtab.predict.fewshot.blend import FittedBlend
from trimtab.predict.fewshot.case import Case
from trimtab.predict.fewshot.curves import FittedCurves
from trimtab.predict.fewshot.foundation import SCHEMA, SHIPPED, from_weights, to_weights
from trimtab.predict.fewshot.prediction import guarded
from trimtab.predict.fewshot.request import PredictionRequest

# Log seconds in single precision are off by less than that, and a leaf's border may fall in between.
SINGLE = 1e-5


@pytest.fixture(scope="module")
def again(fitted: FittedBlend) -> FittedBlend:
    return from_weights(*to_weights(fitted))


@pytest.mark.parametrize("known", [[2], [0, 4], [1, 3, 5]])
def test_answers_ranges_and_rules_are_those_of_the_original(
    fitted: FittedBlend, again: FittedBlend, cases: tuple[Case, ...], known: list[int]
) -> None:
    rows = np.array(known)
    for case in cases[9:]:
        shown = case.known_at(rows)
        np.testing.assert_allclose(again.predict(shown, rows), fitted.predict(shown, rows), rtol=SINGLE)
        for own, original in zip(again.interval(shown, rows), fitted.interval(shown, rows), strict=True):
            np.testing.assert_allclose(own, original, rtol=SINGLE)
        for name, rule in fitted.rules.items():
            np.testing.assert_allclose(
                again.rules[name].predict(shown, rows), rule.predict(shown, rows), rtol=SINGLE
            )


def test_in_an_environment_nobody_was_tested_in_they_are_the_same_too(
    fitted: FittedBlend, again: FittedBlend, cases: tuple[Case, ...]
) -> None:
    rows = np.array([2])
    abroad = replace(cases[-1], environment="elsewhere").known_at(rows)
    for own, original in zip(again.interval(abroad, rows), fitted.interval(abroad, rows), strict=True):
        np.testing.assert_allclose(own, original, rtol=SINGLE)


def test_what_the_backtest_said_comes_back_to_the_digit(fitted: FittedBlend, again: FittedBlend) -> None:
    for name in ("shares", "caution", "margins", "coverage", "errors", "environments"):
        assert getattr(again, name) == getattr(fitted, name), name


def test_a_second_round_changes_nothing(again: FittedBlend) -> None:
    arrays, words = to_weights(again)
    arrays_again, words_again = to_weights(from_weights(arrays, words))
    assert words_again == words
    assert arrays_again.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(arrays_again[name], array)


def test_how_unlike_a_run_is_comes_back(
    fitted: FittedBlend, again: FittedBlend, cases: tuple[Case, ...]
) -> None:
    rows = np.array([1])
    first, second = fitted.members[0], again.members[0]
    assert isinstance(first, FittedCurves)
    assert isinstance(second, FittedCurves)
    for case in cases:
        expected = first.unlikeness(case, rows)
        assert second.unlikeness(case, rows) == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_numbers_are_kept_in_single_precision_and_nothing_in_double(fitted: FittedBlend) -> None:
    arrays, _ = to_weights(fitted)
    assert all(array.dtype != np.float64 for array in arrays.values())


def test_without_curves_there_are_no_weights(fitted: FittedBlend) -> None:
    with pytest.raises(TypeError, match="curves"):
        to_weights(replace(fitted, members=fitted.members[1:], shares=(1.0,)))


@pytest.fixture(scope="module")
def saved(foundation: Foundation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    foundation.save(path)
    return path


def _metadata(path: Path) -> dict[str, str]:
    with safe_open(path, "numpy") as opened:
        return dict(opened.metadata() or {})


def _header_length(content: bytes) -> int:
    return 8 + int.from_bytes(content[:8], "little")


def _refused(path: Path) -> str:
    with pytest.raises(TrimtabError) as refusal:
        load_foundation(path)
    sentence = str(refusal.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    return sentence


def test_a_saved_foundation_answers_like_the_one_that_was_saved(
    foundation: Foundation, saved: Path, cases: tuple[Case, ...]
) -> None:
    loaded = load_foundation(saved)
    assert loaded.card == foundation.card
    _, own = loaded.for_environment("lambda")
    _, original = foundation.for_environment("lambda")
    for case in cases:
        known = np.array([0, 2])
        np.testing.assert_allclose(own.predict(case, known), original.predict(case, known), rtol=1e-5)


def test_saving_what_was_loaded_gives_the_same_file(saved: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.safetensors"
    load_foundation(saved).save(again)
    assert _metadata(again) == _metadata(saved)
    kept = load_file(saved)
    assert {name: array.tobytes() for name, array in load_file(again).items()} == {
        name: array.tobytes() for name, array in kept.items()
    }


@pytest.mark.parametrize("part", ["words", "arrays"])
def test_a_flipped_byte_is_refused_wherever_it_is(saved: Path, tmp_path: Path, part: str) -> None:
    whole = saved.read_bytes()
    border = _header_length(whole)
    first, last = (0, border) if part == "words" else (border, len(whole))
    broken = tmp_path / "broken.safetensors"
    random = np.random.default_rng(0)
    for position in random.integers(first, last, 60).tolist():
        content = bytearray(whole)
        content[position] ^= 1 << random.integers(8)
        if bytes(content) == whole:
            continue
        broken.write_bytes(content)
        _refused(broken)


def test_a_number_changed_in_the_words_is_refused(saved: Path, tmp_path: Path) -> None:
    about = _metadata(saved)
    words = json.loads(about["words"])
    words["functions"]["caution"] = 0.123
    broken = tmp_path / "broken.safetensors"
    save_file(load_file(saved), broken, {**about, "words": json.dumps(words)})
    assert "checksum" in _refused(broken)


@pytest.mark.parametrize("left", [0, 1, 7, 8, 100, 0.5, 0.99])
def test_a_file_that_is_cut_off_is_refused(saved: Path, tmp_path: Path, left: float) -> None:
    whole = saved.read_bytes()
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(whole[: int(left * len(whole)) if isinstance(left, float) else left])
    assert str(broken) in _refused(broken)


def test_a_text_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("environment: lambda\n" * 50, encoding="utf-8")
    assert str(text) in _refused(text)
    assert str(tmp_path) in _refused(tmp_path)


def test_no_file_says_how_to_make_one(tmp_path: Path) -> None:
    assert "trimtab models pretrain" in _refused(tmp_path / "none")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"schema": "0123456789ab"}, f"under another schema (0123456789ab, this version reads {SCHEMA})"),
        ({"schema": None}, "under another schema (none, "),
        ({"checksum": "0"}, "its checksum does not fit"),
        ({"checksum": None}, "its checksum does not fit"),
        ({"words": None}, "its checksum does not fit"),
        ({"card": "{}"}, "its checksum does not fit"),
    ],
)
def test_other_words_about_the_arrays_are_refused(
    saved: Path, tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    about = {k: v for k, v in {**_metadata(saved), **changes}.items() if v is not None}
    other = tmp_path / "other.safetensors"
    save_file(load_file(saved), other, about)
    assert sentence in _refused(other)


def test_arrays_without_any_words_are_refused(tmp_path: Path) -> None:
    bare = tmp_path / "bare.safetensors"
    save_file({"a": np.zeros(3)}, bare)
    assert "schema" in _refused(bare)


@pytest.mark.parametrize(
    "words", ["{}", '{"functions": {}}', "[]", "nonsense", '{"functions": {"members": []}}']
)
def test_words_that_do_not_fit_the_arrays_are_refused(saved: Path, tmp_path: Path, words: str) -> None:
    from trimtab.predict.fewshot.foundation import _checksum

    arrays = load_file(saved)
    about = {**_metadata(saved), "words": words}
    about["checksum"] = _checksum(arrays, about)
    other = tmp_path / "other.safetensors"
    save_file(arrays, other, about)
    assert str(other) in _refused(other)


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(
    foundation: Foundation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights"
    path.write_text("the old ones", encoding="utf-8")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match="no space left on device"):
        foundation.save(path)
    assert path.read_text(encoding="utf-8") == "the old ones"
    assert list(tmp_path.iterdir()) == [path]


def test_a_card_that_cannot_be_written_leaves_nothing(foundation: Foundation, tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        Foundation(foundation.predictors, {"odd": object()}).save(tmp_path / "weights")
    assert list(tmp_path.iterdir()) == []


def test_the_predictor_is_found_by_its_environment(shipped: Foundation) -> None:
    assert shipped.for_environment("lambda")[0] == "functions"
    assert shipped.for_environment("openwhisk")[0] == "functions"
    with pytest.raises(NotFoundError, match=r'"moon".*lambda'):
        shipped.for_environment("moon")


def test_the_shipped_weights_are_small_and_say_what_they_come_from(shipped: Foundation) -> None:
    assert SHIPPED.stat().st_size <= 10e6
    assert shipped.card["sources"].keys() == shipped.predictors.keys()
    for name, fitted in shipped.predictors.items():
        assert set(shipped.card["sources"][name]["environments"]) == fitted.environments
        assert fitted.errors["trimtab"].keys() == {1, 2, 3}


def _takes_less_than(seconds: float, work: Callable[[], object]) -> bool:
    """In one of many tries, so that a busy machine fails nothing."""
    for _ in range(40):
        start = time.perf_counter()
        work()
        if time.perf_counter() - start < seconds:
            return True
    return False


def test_loading_takes_less_than_a_second() -> None:
    assert _takes_less_than(1.0, shipped_foundation)


@pytest.mark.parametrize("runs", [1, 3])
def test_a_hundred_configurations_are_predicted_at_once(
    ask: Callable[..., PredictionRequest], runs: int
) -> None:
    known = [{"memory": f"{size}MB", "time": f"{100 / size}s"} for size in (128, 512, 2048)[:runs]]
    request = ask(*known, at=tuple(f"{size}MB" for size in range(200, 300)))
    assert len(request.case) == 100 + runs
    assert _takes_less_than(0.1, lambda: request.fitted.predict(request.case, request.known))
    assert _takes_less_than(0.15, lambda: guarded(request.fitted, request.case, request.known))


def test_all_machines_of_a_catalog_are_predicted_at_once(ask: Callable[..., PredictionRequest]) -> None:
    request = ask({"configuration": "c4.large nodes=10", "time": "20m"}, environment="ec2")
    assert _takes_less_than(0.03, lambda: request.fitted.predict(request.case, request.known))


@pytest.mark.parametrize(
    ("environment", "ran", "targets"),
    [
        ("H200", "cpu train fp32 batch=8", "H200 train bf16 batch=64"),
        ("gavel", "k80 gpus=1 consolidated", "v100 gpus=1 consolidated"),
    ],
)
def test_a_job_known_on_one_device_is_predicted_on_others(
    ask: Callable[..., PredictionRequest], environment: str, ran: str, targets: str
) -> None:
    """Later devices are faster, and nobody expects a thousand times."""
    request = ask({"configuration": ran, "time": "1s"}, environment=environment, at=(targets,))
    result = guarded(request.fitted, request.case, request.known)
    assert 1e-3 < result.seconds[1] < 1.0
    assert result.low[1] < result.seconds[1] < result.high[1]
    assert result.score is not None
