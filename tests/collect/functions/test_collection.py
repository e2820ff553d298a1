"""What cannot be measured is said; what is measured is kept, each application once."""

import csv
import os
import re
from pathlib import Path

import pytest

from trimtab.collect import Collection, Effort, collect_functions
from trimtab.collect.functions import collection
from trimtab.collect.functions.applications import Application, Segment
from trimtab.collect.functions.lane import FunctionLane
from trimtab.core import BadInputError, MissingDependencyError, TrimtabError
from trimtab.kernel import Hierarchy, NoGroupError

QUICK = Effort(least=2, seconds=0.1, turn=0.05)


@pytest.fixture(autouse=True)
def _small_applications(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(index: int, seed: int) -> Application:
        return Application(f"f{seed}-{index:04d}", (Segment("sleep", {"milliseconds": 5 + index}),))

    monkeypatch.setattr(collection, "draw_application", draw)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (Collection({"azure": 1}), "there is no environment azure; there are lambda, openwhisk"),
        (Collection({"lambda": 0, "openwhisk": 0}), "application"),
        (Collection({}), "application"),
        (Collection({"lambda": 1}, ()), "no memory size is given"),
        (Collection({"lambda": 1}, (128, 128)), "given twice"),
        (Collection({"lambda": 1}, (128, 3)), "3 MB is too little"),
        (Collection({"openwhisk": 1}, (4096,)), "pool of 4096 MB"),
        (Collection({"lambda": 1}, effort=Effort(seconds=float("nan"))), "not a number"),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_happens(
    tmp_path: Path, asked: Collection, sentence: str
) -> None:
    with pytest.raises(BadInputError, match=re.escape(sentence)):
        collect_functions(asked, tmp_path / "f.csv")
    assert os.listdir(tmp_path) == []


def test_large_sizes_are_fine_where_there_is_no_pool() -> None:
    Collection({"lambda": 1, "openwhisk": 0}, (128, 10_240)).check()


@pytest.mark.usefixtures("no_group_is_left")
def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path, seen = tmp_path / "f.csv", list[tuple[int, int]]()
    assert collect_functions(Collection({"lambda": 1}, (512, 2048), QUICK), path) == 1
    first = path.read_text()
    more = Collection({"lambda": 2, "openwhisk": 1}, (512, 2048), QUICK)
    assert collect_functions(more, path, lambda done, of: seen.append((done, of))) == 2
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert path.read_text().startswith(first)
    with open(path) as file:
        rows = list(csv.DictReader(file))
    assert sorted((row["environment"], row["application"]) for row in rows) == sorted(
        2 * [("lambda", "f0-0000"), ("lambda", "f0-0001"), ("openwhisk", "f0-0000")]
    )
    assert {row["status"] for row in rows} == {"ok"}
    assert collect_functions(more, path) == 0


@pytest.mark.usefixtures("no_group_is_left")
def test_an_error_or_the_death_of_a_lane_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise TrimtabError("not today")

    monkeypatch.setattr(FunctionLane, "measure", refuse)
    with pytest.raises(TrimtabError, match="not today"):
        collect_functions(Collection({"lambda": 2}, (512,), QUICK), tmp_path / "f.csv")
    monkeypatch.setattr(FunctionLane, "measure", lambda *_: os.open("/nowhere/at/all", os.O_RDONLY))
    with pytest.raises(TrimtabError, match="no such file"):
        collect_functions(Collection({"lambda": 2}, (512,), QUICK), tmp_path / "f.csv")
    monkeypatch.setattr(FunctionLane, "measure", lambda *_: os._exit(9))
    with pytest.raises(TrimtabError, match="died"):
        collect_functions(Collection({"lambda": 2}, (512,), QUICK), tmp_path / "f.csv")


def test_who_is_not_root_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.kernel.group.find_hierarchy", lambda: Hierarchy(1, {"cpu": tmp_path / "no"}))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NoGroupError, match="as root"):
        collect_functions(Collection({"lambda": 1}), tmp_path / "f.csv")
    assert os.listdir(tmp_path) == []


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name=name)

    monkeypatch.setattr(collection.importlib, "import_module", missing)
    with pytest.raises(MissingDependencyError, match="numpy"):
        collect_functions(Collection({"lambda": 1}), tmp_path / "f.csv")


@pytest.mark.parametrize(
    ("cpus", "lanes", "places", "spare"),
    [
        (1, None, [(0,)], {0}),
        (2, None, [(0, 1)], {0, 1}),
        (2, 9, [(0, 1)], {0, 1}),
        (4, None, [(0, 1)], {2, 3}),
        (4, 2, [(0, 1), (2, 3)], {0, 1, 2, 3}),
        (5, None, [(0, 1), (2, 3)], {4}),
    ],
)
def test_lanes_leave_a_cpu_to_the_servers(
    monkeypatch: pytest.MonkeyPatch,
    cpus: int,
    lanes: int | None,
    places: list[tuple[int, ...]],
    spare: set[int],
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)))
    assert collection._places(lanes) == (places, spare)
