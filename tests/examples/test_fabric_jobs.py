"""The jobs in `examples/fabric`, two workers over loopback: killed, started again, and none the worse."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from trimtab_bench.fabric.gloo_jobs import GlooJob, Restarted, kill_at, run_job, run_restarting

pytest.importorskip("torch", reason="the jobs train with PyTorch")

pytestmark = pytest.mark.timeout(400)

JOBS = Path(__file__).resolve().parents[2] / "examples" / "fabric"
LIMIT = 170.0  # s, for machines that have much else to do
STEPS = 60
RESNET = ("pictures_resnet.py", "--width", 4, "--blocks", 1, "--batch-size", 8)
GPT = ("words_gpt.py", "--width", 16, "--layers", 2, "--batch-size", 8, "--small-batches", 2)


def job(name: str, *options: object, keep: Path | None = None) -> GlooJob:
    words = (sys.executable, str(JOBS / name), *map(str, options))
    return GlooJob(words, checkpoint=keep, every=4)


def killed_and_resumed(words: tuple[object, ...], folder: Path) -> Restarted:
    """Its last worker dies after step 6 or a few later, and it goes on from step 4 or later."""
    name, *options = words
    return run_restarting(
        job(str(name), *options, "--steps", STEPS, keep=folder / "kept"),
        limit=LIMIT,
        meanwhile=kill_at(6, rank=1),
        most=2,
    )


def check_resumed(done: Restarted, folder: Path, parts: int) -> None:
    """Steps done twice had the same loss both times, and only the last checkpoints are left."""
    assert done.failure == ""
    before, after = ({step.number: step.loss for step in run.steps} for run in done.runs)
    twice = before.keys() & after.keys()
    assert twice
    assert {number: before[number] for number in twice} == {number: after[number] for number in twice}
    assert [step.number for step in done.steps] == list(range(1, STEPS + 1))
    losses = [step.loss for step in done.steps]
    assert sum(losses[-5:]) < sum(losses[:5])
    kept = [f"kept.{step}.{rank}" for step in (STEPS - 4, STEPS) for rank in range(parts)]
    assert sorted(file.name for file in folder.iterdir()) == ["kept", *kept]


def test_a_killed_data_parallel_job_resumes_with_the_same_losses(tmp_path: Path) -> None:
    check_resumed(killed_and_resumed(RESNET, tmp_path), tmp_path, parts=1)


def test_a_killed_pipeline_resumes_and_learns_what_one_worker_would_alone(tmp_path: Path) -> None:
    done = killed_and_resumed(GPT, tmp_path)
    check_resumed(done, tmp_path, parts=2)
    alone = subprocess.run(
        [sys.executable, str(JOBS / GPT[0]), *map(str, GPT[1:]), "--steps", "12"],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    printed = [float(line.split()[3]) for line in alone.stdout.splitlines() if line.startswith("step")]
    assert [step.loss for step in done.steps[:12]] == pytest.approx(printed, abs=1e-5)


def test_collectives_are_right_and_timed() -> None:
    run = run_job(job("collectives.py", "--steps", 2, "--bytes", 1024, 65536), limit=LIMIT)
    assert run.failure == ""
    assert [step.loss for step in run.steps] == [0.0, 0.0]
    timed = {(collective.operation, collective.bytes) for collective in run.marks.collectives}
    operations = ("all_reduce", "all_gather", "broadcast", "reduce_scatter", "send_receive")
    assert timed == {(operation, size) for operation in operations for size in (1024, 65536)}
    for collective in run.marks.collectives:
        assert 0.0 < collective.seconds <= collective.worst
        assert collective.times == 2


def test_what_a_job_cannot_do_is_refused() -> None:
    wrong = run_job(replace(job("words_gpt.py", "--small-batches", 3), ranks=1), limit=LIMIT)
    assert "--small-batches must divide --batch-size" in wrong.failure
