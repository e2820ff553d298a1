"""The training jobs in `examples/jobs`, alone and together, as their grid starts them."""

import math
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

pytest.importorskip("torch", reason="the jobs train with PyTorch")

JOBS = Path(__file__).resolve().parents[2] / "examples" / "jobs"
GRID = yaml.safe_load((JOBS / "collect.yaml").read_text())
LEARN_WITHIN = {"news-topics": 200, "review-dense": 40, "spoken-words": 40}  # steps; others take longer
STEP = re.compile(r"step (\d+) loss (\S+) time (\d+\.\d{3})")


def start(command: str, *options: object, **variables: object) -> subprocess.Popen[str]:
    """One worker of a job."""
    alone = {k: v for k, v in os.environ.items() if k not in {"RANK", "WORLD_SIZE"}}
    return subprocess.Popen(
        [sys.executable, *command.split()[1:], *map(str, options)],
        cwd=JOBS,
        env={**alone, "OMP_NUM_THREADS": "1", **{k: str(v) for k, v in variables.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*workers: subprocess.Popen[str]) -> list[str]:
    """Output of each worker; none outlives this call."""
    try:
        printed = [worker.communicate(timeout=100) for worker in workers]
        for worker, (_, complaint) in zip(workers, printed, strict=True):
            assert worker.returncode == 0, complaint
        return [out for out, _ in printed]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def losses(printed: str) -> list[float]:
    return [float(loss) for _, loss, _ in STEP.findall(printed)]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def run_alone(name: str, batch: int, steps: int) -> str:
    command = GRID["jobs"][name]["command"].format(batch=batch)
    return finish(start(command, "--samples", steps * batch, "--epochs", 1))[0]


@pytest.mark.parametrize("name", sorted(set(GRID["jobs"]) - set(LEARN_WITHIN)))
def test_a_job_alone_prints_its_steps(name: str) -> None:
    begun = time.time()
    printed = run_alone(name, GRID["jobs"][name]["batches"][0], steps=3)
    steps = STEP.findall(printed)
    assert [int(number) for number, _, _ in steps] == [1, 2, 3]
    assert all(math.isfinite(loss) for loss in losses(printed))
    moments = [float(moment) for _, _, moment in steps]
    assert begun < moments[0] <= moments[1] <= moments[2] <= time.time()
    assert re.search(r"^parameters \d+$", printed, re.MULTILINE)
    assert re.search(r"^epoch 1 accuracy [01]\.\d+$", printed, re.MULTILINE)


@pytest.mark.parametrize(("name", "steps"), LEARN_WITHIN.items())
def test_a_job_alone_learns(name: str, steps: int) -> None:
    found = losses(run_alone(name, GRID["jobs"][name]["batches"][1], steps))
    assert len(found) == steps
    assert mean(found[-5:]) < 0.9 * mean(found[:5])


def test_two_workers_share_the_samples_and_the_first_speaks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = GRID["jobs"]["news-topics"]["command"].format(batch=16)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    both = [
        start(command, "--samples", 96, "--epochs", 2, RANK=rank, WORLD_SIZE=2, **meeting) for rank in (0, 1)
    ]
    first, second = finish(*both)
    assert len(losses(first)) == 6  # 96 samples are three steps of twice 16, two times over
    assert all(math.isfinite(loss) for loss in losses(first))
    assert second == ""


def test_fewer_samples_than_a_batch_are_refused() -> None:
    job = start("python news_topics.py --batch-size 64", "--samples", 100, RANK=0, WORLD_SIZE=2)
    _, complaint = job.communicate(timeout=60)
    assert job.returncode == 2
    assert "--samples must fill at least one batch" in complaint
    assert "Traceback" not in complaint


def test_the_grid_is_priced_by_its_rule() -> None:
    assert len(GRID["jobs"]) == 7
    assert len(GRID["shapes"]) == 8
    for shape in GRID["shapes"].values():
        gib = int(shape["memory"].removesuffix("MiB")) / 1024
        assert shape["price_per_hour"] == pytest.approx(0.0316 * shape["cpus"] + 0.0042 * gib, abs=1e-6)
