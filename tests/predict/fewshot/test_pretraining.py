"""Learning what ships, on a handful of functions."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from trimtab.core import BadInputError, MissingDependencyError, NotFoundError
from trimtab.predict import Foundation, load_foundation, pretrain
from trimtab.predict.fewshot import pretraining
from trimtab.predict.fewshot.case import Case, Corpus
from trimtab.predict.fewshot.curves import FittedCurves
from trimtab.predict.fewshot.pretraining import Pretraining, check_engine, workers

"""Work side by side, in processes and on a cluster."""


def _squared(number: int) -> int:
    return number * number


def _where(number: int) -> tuple[int, str | None]:
    return os.getpid(), os.environ.get("OMP_NUM_THREADS")


def _failing(number: int) -> int:
    raise BadInputError(f"task {number} is bad")


def test_results_come_in_the_order_of_the_tasks() -> None:
    done: list[int] = []
    with workers() as at_work:
        assert at_work.each(_squared, [3, 1, 2], done.append) == [9, 1, 4]
        assert sorted(done) == [0, 1, 2]
        assert at_work.each(_squared, []) == []
        places = at_work.each(_where, [1, 2])
    assert all(process != os.getpid() and threads == "1" for process, threads in places)


def test_what_goes_wrong_in_a_process_is_raised_here() -> None:
    with workers() as at_work, pytest.raises(BadInputError, match="task 7 is bad"):
        at_work.each(_failing, [7])


def test_an_interrupt_ends_all_processes() -> None:
    code = (
        "import time, multiprocessing\n"
        "from trimtab.predict.fewshot.pretraining import workers\n"
        "if __name__ == '__main__':\n"
        "    with workers() as w:\n"
        "        print(*[p.pid for p in multiprocessing.active_children()], flush=True)\n"
        "        w.each(time.sleep, [60, 60])\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # Whoever runs the tests in the background has taught them to ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert started.stdout is not None
    children = [int(pid) for pid in started.stdout.readline().split()]
    started.send_signal(signal.SIGINT)
    assert started.wait(timeout=20) != 0
    assert children
    deadline = time.monotonic() + 10  # the last one may still be on its way out
    while any(_alive(pid) for pid in children) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(_alive(pid) for pid in children)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("engine", ["", "local", "ray://", "slurm://here", "ray"])
def test_what_is_no_engine_is_refused(engine: str) -> None:
    with pytest.raises(BadInputError, match=f'"{engine}"'):
        check_engine(engine)


def test_without_ray_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"trimtab\[ray\]"):
        check_engine("ray://auto")


@pytest.mark.parametrize("engine", ["ray://127.0.0.1:1", "ray://nowhere", "ray://auto"])
def test_a_cluster_that_is_not_there_is_one_sentence_at_once(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs Ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with (
        pytest.raises(NotFoundError, match=engine) as refusal,
        workers(engine),
    ):
        pass
    assert "\n" not in str(refusal.value)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A Ray cluster on this machine, for these tests alone."""
    pytest.importorskip("ray", reason="needs Ray")
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        yield started.address
    finally:
        started.shutdown()


@pytest.mark.slow
@pytest.mark.timeout(170)
def test_a_cluster_gives_the_same_weights_as_this_machine(
    cluster: str, small: Pretraining, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster)
    for engine in ("local://", "ray://auto"):
        made = pretrain(None, seed=3, engine=engine, settings=small)
        made.save(tmp_path / engine[:3])
    one, other = load_file(tmp_path / "loc"), load_file(tmp_path / "ray")
    assert {name: item.tobytes() for name, item in one.items()} == {
        name: item.tobytes() for name, item in other.items()
    }


def test_a_cluster_that_a_stranger_noted_is_not_given_our_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "ray_current_cluster"
    note.write_text("127.0.0.1:1\n")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(pretraining, "_STARTED_HERE", note)
    assert pretraining._started_here() == "127.0.0.1:1"
    if os.geteuid() != 0:
        pytest.skip("needs root: the note is given to somebody else")
    os.chown(note, 65534, 65534)
    assert pretraining._started_here() == ""


Told = list[tuple[str, float]]


@pytest.fixture(scope="module")
def description() -> Told:
    return []


@pytest.fixture(scope="module")
def made(small: Pretraining, description: Told) -> Foundation:
    return pretrain(None, 3, lambda what, part: description.append((what, part)), settings=small)


def test_without_data_it_learns_from_the_functions_that_came_along(made: Foundation, tmp_path: Path) -> None:
    assert made.card["seed"] == 3
    assert made.card["sources"]["functions"]["applications"] == 4
    assert made.for_environment("lambda")[1].errors["trimtab"].keys() == {1, 2, 3}
    made.save(tmp_path / "weights")
    assert load_foundation(tmp_path / "weights").card == made.card


def test_what_is_finished_is_told_until_all_is(made: Foundation, description: Told) -> None:
    assert {what for what, _ in description} == {
        "encoder", "encoder without group 1", "encoder without group 2", "functions",
    }  # fmt: skip
    assert [part for _, part in description] == [0.25, 0.5, 0.75, 1.0]


def test_the_encoder_alone_went_through_the_test_but_is_no_rule(made: Foundation) -> None:
    fitted = made.predictors["functions"]
    assert fitted.errors["encoder"].keys() == {1, 2, 3}
    assert "encoder" not in fitted.rules


def test_members_without_a_share_are_left_out_but_for_the_curves(made: Foundation) -> None:
    fitted = made.predictors["functions"]
    assert isinstance(fitted.members[0], FittedCurves)
    assert all(share > 0 for share in fitted.shares[1:])
    assert sum(fitted.shares) == pytest.approx(1.0)


def test_whoever_was_learned_from_is_known(made: Foundation, cases: tuple[Case, ...]) -> None:
    assert made.shared is not None
    result = made.shared.similarity(cases[0], np.array([1]))
    assert 0.0 <= result.score <= 1.0
    assert len(result.alike) == 3
    assert cases[0].name in "".join(made.shared.neighbourhood.names[0])


def test_the_same_seed_gives_the_same_weights(made: Foundation, small: Pretraining, tmp_path: Path) -> None:
    made.save(tmp_path / "one")
    pretrain(None, seed=3, settings=small).save(tmp_path / "other")
    one, other = load_file(tmp_path / "one"), load_file(tmp_path / "other")
    assert {name: array.tobytes() for name, array in one.items()} == {
        name: array.tobytes() for name, array in other.items()
    }


def test_with_data_there_is_a_predictor_for_each_set(
    small: Pretraining, cases: tuple[Case, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = sys.modules["trimtab.predict.fewshot.pretraining"]
    others = ["multicloud", "scout", "steps", "gavel"]
    folders = []

    def read(name: str) -> Corpus:
        chosen = [case for case in cases if case.environment == "lambda"][:3]
        return Corpus(name, tuple(_elsewhere(case, name) for case in chosen))

    for name in others:
        monkeypatch.setattr(
            module, f"read_{name}", lambda folder, name=name, **_: folders.append(folder) or read(name)
        )
    made: Foundation = pretrain(tmp_path, settings=small)
    assert folders == [tmp_path] * 4
    assert list(made.predictors) == ["functions", *others]
    name, fitted = made.for_environment("at scout")
    assert name == "scout"
    known = np.array([0])
    assert np.isfinite(fitted.predict(_elsewhere(cases[0], "scout"), known)).all()
    assert made.shared is not None
    assert made.shared.neighbourhood.unseen.keys() == {"functions", *others}


def test_a_folder_without_data_is_refused_before_anything_is_learned(
    tmp_path: Path, description: Told
) -> None:
    before = list(description)
    with pytest.raises(BadInputError, match=re.escape(str(tmp_path))):
        pretrain(tmp_path, progress=lambda what, part: description.append((what, part)))
    assert description == before


def test_what_is_no_engine_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="engine"):
        pretrain(tmp_path, engine="moon://")


def _elsewhere(case: Case, name: str) -> Case:
    return replace(case, corpus=name, environment=f"at {name}")
