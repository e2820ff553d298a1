"""Work side by side, in processes and on a cluster."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from trimtab.core import BadInputError, MissingDependencyError, NotFoundError
from trimtab.predict import pretrain
from trimtab.predict.fewshot.foundation import workers as workers_module
from trimtab.predict.fewshot.foundation.pretraining import Pretraining
from trimtab.predict.fewshot.foundation.workers import check_engine, workers


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
        "from trimtab.predict.fewshot.foundation.workers import workers\n"
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
    time.sleep(1.0)
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
    with pytest.raises(BadInputError, match="is no engine to learn on"):
        check_engine(engine)


def test_without_ray_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'trimtab\[ray\]'"):
        check_engine("ray://auto")


@pytest.mark.parametrize("engine", ["ray://127.0.0.1:1", "ray://nowhere", "ray://auto"])
def test_a_cluster_that_is_not_there_is_one_sentence_at_once(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs Ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with (
        pytest.raises(NotFoundError, match=f"no Ray cluster answers at {engine}") as refusal,
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
    assert {name: each.tobytes() for name, each in one.items()} == {
        name: each.tobytes() for name, each in other.items()
    }


def test_a_cluster_that_a_stranger_noted_is_not_given_our_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "ray_current_cluster"
    note.write_text("127.0.0.1:1\n")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(workers_module, "_STARTED_HERE", note)
    assert workers_module._started_here() == "127.0.0.1:1"
    if os.geteuid() != 0:
        pytest.skip("needs root: the note is given to somebody else")
    os.chown(note, 65534, 65534)
    assert workers_module._started_here() == ""
