"""Finished parts of a bench are kept, and only as long as they are what a run would give again."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from trimtab_bench import BenchOptions, finished
from trimtab_bench.fewshot_protocol import ScoredPredictions
from trimtab_bench.finished import Finished

TASK = ("functions", "trimtab", 3)
METHOD = "with settings"


def place(
    options: BenchOptions = BenchOptions(),  # noqa: B008
    bench: str = "fewshot",
    data: Sequence[Path] = (),
) -> Finished:
    return Finished.of(bench, options, data)


@pytest.fixture
def kept() -> Finished:
    return place()


@pytest.fixture
def found() -> dict[int, ScoredPredictions]:
    """Of two applications, with a range where one run is known and without where two are."""
    times = np.array([1.0, 2.5, 1e-3])
    names = (["a", "a", "b é"], ["a-0", "a-0", "b-0"])
    return {
        1: ScoredPredictions(*names, times, 1.1 * times, 0.5 * times, 2.0 * times),
        2: ScoredPredictions(*names, 2 * times, times),
    }


def _file(kept: Finished) -> Path:
    (path,) = kept.folder.iterdir()
    return path


def test_what_is_kept_comes_back_as_it_was(kept: Finished, found: dict[int, ScoredPredictions]) -> None:
    kept.save(TASK, METHOD, found)
    back = kept.load(TASK, METHOD)
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


def test_a_part_that_was_not_done_is_not_there(kept: Finished, found: dict[int, ScoredPredictions]) -> None:
    assert kept.load(TASK, METHOD) is None
    kept.save(TASK, METHOD, found)
    assert kept.load(("functions", "trimtab", 4), METHOD) is None
    assert kept.load(("functions", "flash", 3), METHOD) is None


def test_a_part_without_predictions_is_done_too(kept: Finished) -> None:
    kept.save(TASK, METHOD, {})
    assert kept.load(TASK, METHOD) == {}


def test_it_keeps_to_the_home_folder(
    kept: Finished, found: dict[int, ScoredPredictions], tmp_path: Path
) -> None:
    kept.save(TASK, METHOD, found)
    assert _file(kept).is_relative_to(tmp_path / "home" / "bench" / "fewshot")
    assert [path.suffix for path in kept.folder.iterdir()] == [".npz"], "nothing half written is left"


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: b"not what was kept", id="another file"),
        pytest.param(lambda content: b"", id="empty"),
        pytest.param(lambda content: content[: len(content) // 2], id="cut short"),
        pytest.param(lambda content: content[:-1], id="one byte short"),
        pytest.param(lambda content: content[:80] + b"\x00" * 40 + content[120:], id="overwritten"),
    ],
)
def test_a_damaged_file_counts_as_not_done(
    kept: Finished, found: dict[int, ScoredPredictions], damage: Callable[[bytes], bytes]
) -> None:
    kept.save(TASK, METHOD, found)
    path = _file(kept)
    path.write_bytes(damage(path.read_bytes()))
    assert kept.load(TASK, METHOD) is None


def test_a_file_with_a_field_missing_counts_as_not_done(
    kept: Finished, found: dict[int, ScoredPredictions]
) -> None:
    kept.save(TASK, METHOD, found)
    with np.load(_file(kept)) as fields:
        fewer = {name: fields[name] for name in fields.files if name != "2/measured"}
    np.savez(_file(kept), **fewer)
    assert kept.load(TASK, METHOD) is None


def test_the_same_run_finds_its_parts_again(kept: Finished, found: dict[int, ScoredPredictions]) -> None:
    kept.save(TASK, METHOD, found)
    assert place(BenchOptions(quiet=True)).load(TASK, METHOD) is not None


@pytest.mark.parametrize("options", [BenchOptions(quick=True), BenchOptions(seed=1)], ids=str)
def test_another_run_has_parts_of_its_own(
    kept: Finished, found: dict[int, ScoredPredictions], options: BenchOptions
) -> None:
    kept.save(TASK, METHOD, found)
    assert place(options).load(TASK, METHOD) is None
    assert place(bench="another").load(TASK, METHOD) is None
    assert place().load(TASK, "with other settings") is None


def test_other_data_has_parts_of_its_own(tmp_path: Path) -> None:
    folders = [place().folder, place(data=[tmp_path]).folder]
    for name, content in (("runs.csv.gz", b"some"), ("runs.csv.gz", b"more"), ("functions.csv", b"some")):
        (tmp_path / name).write_bytes(content)
        folders.append(place(data=[tmp_path]).folder)
    assert len(set(folders[1:])) == 4
    assert place(data=[tmp_path]).folder == folders[-1]


def test_other_code_has_parts_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished, "_PREDICT", tmp_path)
    folders = []
    for source in ("x = 1", "x = 2"):
        (tmp_path / "rules.py").write_text(source)
        folders.append(place().folder)
    assert len(set(folders)) == 2
