"""A real Slurm of three nodes on this machine, for a test's own."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

_CONFIGURATION = """\
ClusterName=trimtab
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
CommunicationParameters=NoInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000
GresTypes=gpu
MpiDefault=none
ReturnToService=2
KillWait=1
MessageTimeout=3
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
NodeName=DEFAULT CPUs=4 RealMemory=1024 State=UNKNOWN
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} Gres=gpu:t4:2 Feature=fast,zone-a
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} Gres=gpu:2 Feature=zone-b,v100
NodeName=n3 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[3]} CPUs=2 RealMemory=512
PartitionName=all Nodes=ALL Default=YES State=UP
PartitionName=small Nodes=n3 State=UP
"""
_DEVICES = """\
NodeName=n1 Name=gpu Type=t4 File={folder}/gpu[0-1]
NodeName=n2 Name=gpu File={folder}/gpu[0-1]
"""


class SmallSlurm:
    """munged, slurmctld and three slurmd of one's own, on loopback, in a folder of their own."""

    def __init__(self, folder: Path, free_port: Callable[[], int]) -> None:
        self.folder = folder
        self.configuration = folder / "slurm.conf"
        self.environment = {**os.environ, "SLURM_CONF": str(self.configuration)}
        for part in ("munge", "state"):
            (folder / part).mkdir(parents=True)
        for number, minor in ((0, 3), (1, 5)):  # as /dev/null and /dev/zero: Slurm wants devices
            os.mknod(folder / f"gpu{number}", 0o20666, os.makedev(1, minor))
        key = folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        ports = [free_port() for _ in range(4)]
        self.configuration.write_text(_CONFIGURATION.format(folder=folder, ports=ports))
        (folder / "gres.conf").write_text(_DEVICES.format(folder=folder))
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *arguments: str) -> None:
        with open(self.folder / f"{name}.out", "ab") as out:
            self.daemons[name] = subprocess.Popen(
                [program(name.partition("-")[0]), *arguments], env=self.environment, stdout=out, stderr=out
            )

    def start_all(self) -> None:
        munge = self.folder / "munge"
        files = [f"--{what}-file={munge}/{what}" for what in ("key", "pid", "seed", "log")]
        self.start("munged", "--foreground", "--force", f"--socket={munge}/socket", *files)
        until((munge / "socket").exists)
        self.start("slurmctld", "-D", "-i")
        for node in ("n1", "n2", "n3"):
            self.start(f"slurmd-{node}", "-D", "-N", node)
        until(lambda: self.ask("sinfo", "-h", "-N", "-p", "all", "-o", "%T").split() == ["idle"] * 3, 60)

    def ask(self, *command: str) -> str:
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60
        ).stdout

    def stop(self, name: str) -> None:
        daemon = self.daemons.pop(name)
        daemon.terminate()
        try:
            daemon.wait(20)  # until it has saved what it knows
        except subprocess.TimeoutExpired:  # it waits for another that is gone
            daemon.kill()
            daemon.wait()

    def stop_all(self) -> None:
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            stack.callback(self._end_what_is_left)
            for name in self.daemons:
                stack.callback(self.stop, name)

    def _end_what_is_left(self) -> None:
        """Find descendants of the daemons by the configuration in their environment."""
        for process in psutil.process_iter(["environ"]):
            if (process.info["environ"] or {}).get("SLURM_CONF") == str(self.configuration):
                process.kill()


@contextmanager
def open_slurm(free_port: Callable[[], int]) -> Iterator[SmallSlurm]:
    """All daemons run; the test is skipped where they are not installed."""
    missing = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not program(name)]
    if missing or os.geteuid() != 0:
        pytest.skip(
            f"needs root and packages slurmctld, slurmd, slurm-client, munge ({missing or 'not root'})"
        )
    # Munge trusts no socket below a folder that everyone can write to, such as /tmp.
    made = SmallSlurm(Path("/run") / f"trimtab-test-slurm-{os.getpid()}", free_port)
    try:
        made.start_all()
        yield made
    finally:
        made.stop_all()


def program(name: str) -> str:
    """Where a program is, also one for administrators; nothing where it is not installed."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") or ""


def until(holds: Callable[[], bool], seconds: float = 40.0) -> None:
    """Wait until it holds, no longer than that."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
