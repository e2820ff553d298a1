"""Any space with a measuring command: real commands are run, and bad descriptions are refused."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from recording_ledger import RecordingLedger

from trimtab.core import BadInputError
from trimtab.kernel import processes
from trimtab.tune import Limits, SpaceSource, Tuned, TuneOptions, tune_space
from trimtab.tune.command_space import CommandTrials

SCRIPT = """
import sys
kind, nodes = sys.argv[1], float(sys.argv[2])
if kind == "tiny" and nodes < 2:
    sys.exit("out of disk")
work = {"tiny": 400, "large": 100}[kind]
print("measuring")
print("seconds", work / nodes + 10 * nodes)
"""
YAML = """
command: %s measure.py {kind} {nodes}
settings:
  kind: [tiny, large]
  nodes: [1, 2, 4, 8]
price:
  kind: {tiny: 0.1, large: 0.3}
  nodes: times
measure: printed
timeout: 20s
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "measure.py").write_text(SCRIPT)
    (tmp_path / "space.yaml").write_text(YAML % sys.executable)
    return tmp_path


def seconds(kind: str, nodes: float) -> float:
    return {"tiny": 400, "large": 100}[kind] / nodes + 10 * nodes


@pytest.fixture
def tune(folder: Path) -> Callable[..., Tuned]:
    def tune(name: str = "space.yaml", trials: int = 8, objective: str = "cost", **source: object) -> Tuned:
        options = TuneOptions(objective, Limits(trials), "trimtab")
        there = SpaceSource(folder / name, **source)  # type: ignore[arg-type]
        return tune_space(there, options, RecordingLedger(), folder / "state.json")

    return tune


def test_every_combination_has_its_price(folder: Path) -> None:
    space = SpaceSource(folder / "space.yaml").read()
    assert len(space.setups) == 8
    prices = {setup.name: setup.price_per_second * 3600 for setup in space.setups}
    assert prices["kind=tiny, nodes=4"] == pytest.approx(0.4)
    assert prices["kind=large, nodes=8"] == pytest.approx(2.4)
    assert space.words(0) == [sys.executable, "measure.py", "tiny", "1"]


def test_the_best_is_found_failures_are_kept_and_nothing_is_tried_twice(tune: Callable[..., Tuned]) -> None:
    tuned = tune()
    assert tuned.best.setup.plain["settings"] == {"kind": "large", "nodes": 1}
    assert tuned.best.evidence == "trial"
    assert tuned.best.time.value == pytest.approx(seconds("large", 1))
    failed = [trial for trial in tuned.trials if not trial.ok]
    assert all(trial.setup == "kind=tiny, nodes=1" and "out of disk" in trial.reason for trial in failed)
    assert len({trial.setup for trial in tuned.trials}) == len(tuned.trials)
    again = tune()
    assert again.trials == tuned.trials, "what was measured is not measured again"


def test_a_csv_is_a_space_and_run_time_is_measured(folder: Path) -> None:
    (folder / "space.csv").write_text("pause,price\n0.3,1\n0.01,2\n0.2,1.5\n")
    command = f"{sys.executable} -c 'import time; time.sleep({{pause}})'"
    options = TuneOptions("time", Limits(3), "trimtab")
    ledger = RecordingLedger()
    tuned = tune_space(SpaceSource(folder / "space.csv", command), options, ledger)
    assert tuned.best.setup.name == "pause=0.01"
    measured = {trial.setup: trial.step_seconds for trial in tuned.trials}
    assert measured["pause=0.3"] >= 0.3  # type: ignore[operator]
    *trials, last = ledger.decisions
    assert [each.kind for each in trials] == ["trial"] * 3
    assert (last.kind, last.action["pause"]) == ("tune", 0.01)
    assert len(ledger.outcomes) == 3


def test_other_workloads_say_where_to_begin(folder: Path, tune: Callable[..., Tuned]) -> None:
    rows = ["workload,kind,nodes,seconds"]
    for name, factor in (("first", 1.0), ("second", 3.0), ("third", 10.0)):
        for kind in ("tiny", "large"):
            for nodes in (1, 2, 4, 8):
                took = "" if (kind, nodes) == ("tiny", 1) else str(factor * seconds(kind, nodes))
                rows.append(f"{name},{kind},{nodes},{took}")
    rows.append("first,huge,1,3")
    (folder / "others.csv").write_text("\n".join(rows) + "\n")
    predicted = tune(trials=0, measurements=folder / "others.csv")
    assert predicted.trials == ()
    assert predicted.best.setup.name == "kind=large, nodes=1"
    assert predicted.best.evidence == "model"
    first = tune(trials=1, measurements=folder / "others.csv")
    assert first.trials[0].setup == "kind=large, nodes=1"


def test_a_command_that_hangs_is_ended_and_leaves_nothing(folder: Path) -> None:
    text = (folder / "space.yaml").read_text().replace("timeout: 20s", "timeout: 0.3s")
    (folder / "space.yaml").write_text(text)
    (folder / "measure.py").write_text("import subprocess; subprocess.run(['sleep', '987'])")
    trial = CommandTrials(SpaceSource(folder / "space.yaml").read()).run(0, lambda turn: True)
    assert (trial.status, trial.ok) == ("timed-out", False)
    assert "0.3" in trial.reason or "300 ms" in trial.reason
    assert not [each.pid for each in processes() if _current_folder(each.pid) == folder]


def _current_folder(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return None


def test_the_deadline_and_the_budget_are_kept(folder: Path) -> None:
    for limits in (Limits(5, seconds=0.0), Limits(5, budget=0.0)):
        ledger = RecordingLedger()
        with pytest.raises(BadInputError, match="--trials"):
            tune_space(SpaceSource(folder / "space.yaml"), TuneOptions("cost", limits), ledger)
        assert ledger.decisions == []


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("price:\n  kind: {tiny: 0.1, large: 0.3}\n  nodes: times\n", "", "price is missing"),
        ("large: 0.3}", "}", "price.kind has no entry for large"),
        ("nodes: times", "knots: times", "price.knots is no setting (did you mean nodes?)"),
        ("{tiny: 0.1,", "{tiny: 0,", "price"),
        ("nodes: [1, 2, 4, 8]", "nodes: []", "settings.nodes is empty"),
        ("nodes: [1, 2, 4, 8]", "nodes: [1, 2, 2]", "settings.nodes has a value twice"),
        ("{kind} {nodes}", "{kind} {noodes}", "{noodes}"),
        ("{kind} {nodes}", "", "no placeholder"),
        ("timeout: 20s", "timeout: soon", "timeout"),
        ("timeout: 20s", "timeouts: 20s", "timeouts"),
        ("measure: printed", "measure: guessed", "measure"),
        ("measure: printed", "folder: nowhere", "nowhere"),
    ],
)
def test_a_bad_description_is_refused(folder: Path, old: str, new: str, part: str) -> None:
    path = folder / "space.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(BadInputError) as error:
        SpaceSource(path).read()
    assert str(path) in str(error.value)
    assert part in str(error.value)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("kind,nodes\na,1\n", "price"),
        ("kind,price\n", "no row"),
        ("kind,price\na,1\nb,2\na,3\n", "line 4"),
        ("kind,price\na,free\n", "'free'"),
        ("kind,price\na,-1\n", "'-1'"),
        ("kind,price\na\n", "line 2"),
        ("price\n1\n", "setting"),
        ("kind,kind,price\na,b,1\n", "kind"),
    ],
)
def test_a_bad_table_is_refused(folder: Path, content: str, part: str) -> None:
    path = folder / "space.csv"
    path.write_text(content)
    with pytest.raises(BadInputError) as error:
        SpaceSource(path, "./run {kind}").read()
    assert str(path) in str(error.value)
    assert part in str(error.value)


@pytest.mark.parametrize(("script", "part"), [("print('done')", "'done'"), ("print(-3)", "'-3'"), ("", "''")])
def test_a_command_that_prints_no_number_is_refused(
    folder: Path, tune: Callable[..., Tuned], script: str, part: str
) -> None:
    (folder / "measure.py").write_text(script)
    with pytest.raises(BadInputError) as error:
        tune()
    assert part in str(error.value)
    assert not (folder / "state.json").exists()


def test_a_command_that_is_not_there_is_refused(folder: Path, tune: Callable[..., Tuned]) -> None:
    text = (folder / "space.yaml").read_text().replace(sys.executable, "./not-there")
    (folder / "space.yaml").write_text(text)
    with pytest.raises(BadInputError, match="not-there"):
        tune()


def test_one_that_fails_everywhere_is_recommended_nowhere(folder: Path, tune: Callable[..., Tuned]) -> None:
    (folder / "measure.py").write_text("import sys; sys.exit('no license')")
    with pytest.raises(BadInputError, match="no license"):
        tune(trials=2)
