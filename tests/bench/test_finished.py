"""Finished parts of a bench are kept, and only as long as they are what a run would give again."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trimtab.bench import BenchOptions
from trimtab.bench.finished import Finished
from trimtab.predict import fewshot
from trimtab.predict.fewshot import Predictions

TASK = ("functions", "trimtab", 3)


@pytest.fixture
def kept() -> Finished:
    return Finished.of("fewshot", BenchOptions())


@pytest.fixture
def found() -> dict[int, Predictions]:
    """Of two applications, with a range where one run is known and without where two are."""
    times = np.array([1.0, 2.5, 1e-3])
    names = (["a", "a", "b é"], ["a-0", "a-0", "b-0"])
    return {
        1: Predictions(*names, times, 1.1 * times, 0.5 * times, 2.0 * times),
        2: Predictions(*names, 2 * times, times),
    }


def _file(kept: Finished) -> Path:
    (path,) = kept.folder.iterdir()
    return path


def test_what_is_kept_comes_back_as_it_was(kept: Finished, found: dict[int, Predictions]) -> None:
    kept.save(TASK, found)
    back = kept.load(TASK)
    assert back is not None
    assert list(back) == [1, 2]
    for shots, one in found.items():
        assert list(back[shots].application) == list(one.application)
        assert list(back[shots].case) == list(one.case)
        for field in ("predicted", "measured", "low", "high"):
            before, after = getattr(one, field), getattr(back[shots], field)
            assert (before is None) == (after is None)
            if before is not None:
                np.testing.assert_array_equal(after, before)


def test_a_part_that_was_not_done_is_not_there(kept: Finished, found: dict[int, Predictions]) -> None:
    assert kept.load(TASK) is None
    kept.save(TASK, found)
    assert kept.load(("functions", "trimtab", 4)) is None
    assert kept.load(("functions", "flash", 3)) is None


def test_a_part_without_predictions_is_done_too(kept: Finished) -> None:
    kept.save(TASK, {})
    assert kept.load(TASK) == {}


def test_it_keeps_to_the_home_folder(kept: Finished, found: dict[int, Predictions], tmp_path: Path) -> None:
    kept.save(TASK, found)
    assert _file(kept).is_relative_to(tmp_path / "home" / "bench" / "fewshot")
    assert [path.suffix for path in kept.folder.iterdir()] == [".npz"], "nothing half written is left"


unread = pytest.mark.xfail(strict=True, reason="errors of the zip format are not taken for a damaged file")


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: b"not what was kept", id="another file"),
        pytest.param(lambda content: b"", id="empty", marks=unread),
        pytest.param(lambda content: content[: len(content) // 2], id="cut short", marks=unread),
        pytest.param(lambda content: content[:-1], id="one byte short", marks=unread),
        pytest.param(
            lambda content: content[:80] + b"\x00" * 40 + content[120:], id="overwritten", marks=unread
        ),
    ],
)
def test_a_damaged_file_counts_as_not_done(
    kept: Finished, found: dict[int, Predictions], damage: Callable[[bytes], bytes]
) -> None:
    kept.save(TASK, found)
    path = _file(kept)
    path.write_bytes(damage(path.read_bytes()))
    assert kept.load(TASK) is None


def test_a_file_with_a_field_missing_counts_as_not_done(
    kept: Finished, found: dict[int, Predictions]
) -> None:
    kept.save(TASK, found)
    with np.load(_file(kept)) as fields:
        fewer = {name: fields[name] for name in fields.files if name != "2/measured"}
    np.savez(_file(kept), **fewer)
    assert kept.load(TASK) is None


def test_the_same_run_finds_its_parts_again(kept: Finished, found: dict[int, Predictions]) -> None:
    kept.save(TASK, found)
    assert Finished.of("fewshot", BenchOptions(quiet=True)).load(TASK) is not None


@pytest.mark.parametrize("options", [BenchOptions(quick=True), BenchOptions(seed=1)], ids=str)
def test_another_run_has_parts_of_its_own(
    kept: Finished, found: dict[int, Predictions], options: BenchOptions
) -> None:
    kept.save(TASK, found)
    assert Finished.of("fewshot", options).load(TASK) is None
    assert Finished.of("another", BenchOptions()).load(TASK) is None


def test_other_data_has_parts_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "data" / "scout").mkdir(parents=True)
    options = BenchOptions(data=tmp_path / "data")
    folders = [Finished.of("fewshot", BenchOptions()).folder, Finished.of("fewshot", options).folder]
    for content in (b"some", b"some more"):
        (tmp_path / "data" / "scout" / "runs.csv.gz").write_bytes(content)
        folders.append(Finished.of("fewshot", options).folder)
    assert len(set(folders[1:])) == 3
    assert Finished.of("fewshot", options).folder == folders[-1]


@pytest.mark.xfail(strict=True, reason="of the data, only compressed files are looked at")
def test_own_functions_have_parts_of_their_own(tmp_path: Path) -> None:
    folders = [Finished.of("fewshot", BenchOptions()).folder]
    (tmp_path / "functions").mkdir()
    for content in ("some", "some more"):
        (tmp_path / "functions" / "functions.csv").write_text(content)
        folders.append(Finished.of("fewshot", BenchOptions(data=tmp_path)).folder)
    assert len(set(folders)) == 3


def test_other_code_or_functions_have_parts_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, functions = tmp_path / "code", tmp_path / "functions.csv"
    code.mkdir()
    monkeypatch.setattr(fewshot, "__path__", [str(code)])
    monkeypatch.setattr(fewshot, "BUNDLED_FUNCTIONS", functions)
    folders = []
    for source, rows in (("x = 1", "a"), ("x = 2", "a"), ("x = 2", "b")):
        (code / "rules.py").write_text(source)
        functions.write_text(rows)
        folders.append(Finished.of("fewshot", BenchOptions()).folder)
    assert len(set(folders)) == 3
