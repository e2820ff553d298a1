"""Slurm's batch script: bash's own check, its directives, and a real Slurm where one is installed."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from small_slurm import SmallSlurm

from trimtab.core import Configuration, Workload
from trimtab.engines import job_file

Configure = Callable[..., Configuration]
WORKLOAD = Workload("Ünusual\nnäme", command=("python", "train.py", "--note", "it's\r\n $(x)"))


def directives(text: str) -> dict[str, str]:
    """Options as sbatch reads them: only before the first line that is not a comment."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#SBATCH --"):
            option, _, value = line.removeprefix("#SBATCH --").partition("=")
            found[option] = value
        elif line and not line.startswith("#"):
            break
    return found


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("offer", ["a100", "cpu", "amd"])
def test_bash_accepts_every_script(configuration: Configure, offer: str, nodes: int) -> None:
    text = job_file("slurm", WORKLOAD, configuration(offer, nodes=nodes), expected_seconds=4000.0)
    subprocess.run(["bash", "-n"], input=text.encode(), check=True)
    assert text.startswith("#!/bin/bash\n")
    assert "\r" not in text


def test_the_directives_ask_for_the_configuration(configuration: Configure) -> None:
    text = job_file("slurm", WORKLOAD, configuration("a100", nodes=2, spot=True), expected_seconds=90000.0)
    assert directives(text) == {
        "job-name": "nusual-n-me",
        "nodes": "2",
        "ntasks-per-node": "1",
        "cpus-per-task": "86",
        "mem": "1001676M",
        "gres": "gpu:8",
        "time": "2-02:00:00",
        "requeue": "",
    }


def test_mpirun_is_called_once_and_finds_the_nodes_itself(
    configuration: Configure, run_script: Callable[..., list[str]]
) -> None:
    text = job_file("slurm", Workload("a", command=("mpirun", "x")), configuration("a100", nodes=2))
    assert "srun" not in text
    assert run_script(text, SLURM_NODEID="0", SLURM_JOB_NODELIST="x") == ["mpirun", "x"]


@pytest.mark.slow
def test_a_real_slurm_runs_the_script(configuration: Configure, cluster: SmallSlurm, tmp_path: Path) -> None:
    small = configuration("cpu")
    one_cpu = replace(small, offer=replace(small.offer, vcpus=1, memory=2**30))
    said = "it's\n unusual: ü $(x)"
    workload = Workload("Ünusual\nnäme", command=("printf", "%s %s", said, "--batch-size=3"))
    script = tmp_path / "job.sh"
    script.write_text(job_file("slurm", workload, one_cpu, max_seconds=60.0), "utf-8")
    command = ["sbatch", "--wait", f"--output={tmp_path}/out", str(script)]
    environment = cluster.environment
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text("utf-8") == f"{said} --batch-size=64"
