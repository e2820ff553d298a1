"""Goals, tables and kept parts that all benches share."""

from collections.abc import Callable
from operator import ge, le, lt
from pathlib import Path

import pytest
from trimtab_bench.harness import BenchGoal, Kept, ResultTable, goals_table, judged


def test_a_goal_is_met_on_its_own_side_alone() -> None:
    found = judged(
        [
            BenchGoal("at the most", 2.0, le, 2.0),
            BenchGoal("more than the most", 2.1, le, 2.0),
            BenchGoal("at the least", 2.0, ge, 2.0),
            BenchGoal("less than the least", 1.9, ge, 2.0),
            BenchGoal("below", 1.9, lt, 2.0),
            BenchGoal("not below", 2.0, lt, 2.0),
        ]
    )
    assert [each["met"] for each in found.values()] == [True, False, True, False, True, False]
    assert found["below"] == {"value": 1.9, "wanted": "less than 2", "met": True}


def test_goals_are_shown_with_what_is_wanted_of_them() -> None:
    table = goals_table(judged([BenchGoal("rounds per second", 234567.0, ge, 2e5)]), "Goals")
    assert table.title == "Goals"
    assert list(table.rows) == [("rounds per second", "234,567.000", "at least 200000", "yes")]


def test_a_table_is_filled_from_the_rows_by_format_strings() -> None:
    rows = {"a": {"p99_ms": 1.234, "range": [1, 2]}, "b": {"p99_ms": 5.0, "range": [3, 4]}}
    table = ResultTable.of(
        "Latency", "policy", rows, {"p99": "{p99_ms:.1f}", "seeds": "{range[0]}-{range[1]}"}
    )
    assert table.columns == ("policy", "p99", "seeds")
    assert list(table.rows) == [("a", "1.2", "1-2"), ("b", "5.0", "3-4")]


def test_a_kept_part_comes_back_as_it_was_and_lies_in_the_home_folder(tmp_path: Path) -> None:
    kept = Kept.of("fewshot", "settings", [])
    assert kept.load("part.json") is None
    kept.save("part.json", b"content")
    assert kept.load("part.json") == b"content"
    assert kept.load("other.json") is None
    assert [path.name for path in kept.folder.iterdir()] == ["part.json"], "nothing half written is left"
    assert kept.folder.is_relative_to(tmp_path / "home" / "bench" / "fewshot")


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: b"not what was kept", id="another file"),
        pytest.param(lambda content: b"", id="empty"),
        pytest.param(lambda content: content[: len(content) // 2], id="cut short"),
        pytest.param(lambda content: content[:-1], id="one byte short"),
        pytest.param(lambda content: content[:8] + b"\x00" * 4 + content[12:], id="overwritten"),
    ],
)
def test_a_damaged_part_counts_as_not_finished(damage: Callable[[bytes], bytes]) -> None:
    kept = Kept.of("fewshot", "settings", [])
    kept.save("part.json", b"content of a part")
    path = kept.folder / "part.json"
    path.write_bytes(damage(path.read_bytes()))
    assert kept.load("part.json") is None


def test_other_settings_and_other_files_have_parts_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    folders = [Kept.of("fewshot", settings, []).folder for settings in ((False, 0), (True, 0), (False, 1))]
    folders.append(Kept.of("other", (False, 0), []).folder)
    for content in (b"some", b"more"):
        file.write_bytes(content)
        folders.append(Kept.of("fewshot", (False, 0), [file]).folder)
    folders.append(Kept.of("fewshot", (False, 0), [file.rename(tmp_path / "functions.csv")]).folder)
    assert len(set(folders)) == len(folders)
    assert Kept.of("fewshot", (False, 0), []).folder == folders[0]
