"""Slurm's batch script: bash's own check, its directives, and a real Slurm where one is installed."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

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


_CONFIGURATION = """\
ClusterName=trimtab
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
CommunicationParameters=NoInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
MpiDefault=none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName=localhost NodeAddr=127.0.0.1 CPUs=1 RealMemory=1024 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture
def slurm(free_port: Callable[[], int]) -> Iterator[dict[str, str]]:
    """A Slurm of one node on this machine, of one's own; the environment that its commands need."""
    missing = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not _program(name)]
    if missing or os.geteuid() != 0:
        pytest.skip(
            f"needs root and packages slurmctld, slurmd, slurm-client, munge ({missing or 'not root'})"
        )
    # Munge trusts no socket below a folder that everyone can write to, such as /tmp.
    folder = Path("/run") / f"trimtab-test-slurm-{os.getpid()}"
    for part in ("munge", "state", "spool"):
        (folder / part).mkdir(parents=True)
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    ports = {"controller": free_port(), "daemon": free_port()}
    (folder / "slurm.conf").write_text(_CONFIGURATION.format(folder=folder, **ports))
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    munge_files = [
        f"--{what}={folder}/munge/{what}" for what in ("socket", "pid-file", "seed-file", "log-file")
    ]
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for command in (
            [_program("munged"), "--foreground", "--force", f"--key-file={key}", *munge_files],
            [_program("slurmctld"), "-D", "-i"],
            [_program("slurmd"), "-D", "-N", "localhost"],
        ):
            quiet = subprocess.DEVNULL
            daemons.append(subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet))
            time.sleep(0.5)
        yield environment
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") or ""


@pytest.mark.slow
def test_a_real_slurm_runs_the_script(
    configuration: Configure, slurm: dict[str, str], tmp_path: Path
) -> None:
    small = configuration("cpu")
    one_cpu = replace(small, offer=replace(small.offer, vcpus=1, memory=2**30))
    said = "it's\n unusual: ü $(x)"
    workload = Workload("Ünusual\nnäme", command=("printf", "%s %s", said, "--batch-size=3"))
    script = tmp_path / "job.sh"
    script.write_text(job_file("slurm", workload, one_cpu, max_seconds=60.0), "utf-8")
    command = ["sbatch", "--wait", f"--output={tmp_path}/out", str(script)]
    done = subprocess.run(command, env=slurm, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text("utf-8") == f"{said} --batch-size=64"
