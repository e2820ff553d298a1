"""Offers of every shape, and a place where a job file's script can be run with nothing behind it."""

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest
from small_slurm import SmallSlurm, open_slurm

from trimtab.core import Configuration, Offer

GIB = 2**30


def _offer(
    cloud: str, region: str, instance: str, vcpus: float, memory: float, accelerator: str | None, n: int
) -> Offer:
    return Offer(cloud, region, instance, vcpus, memory, accelerator, n, 0.01, 0.004, 1e9, date(2026, 8, 22))


OFFERS = {
    "a100": _offer("aws", "us-east-1", "p4d.24xlarge", 96, 1152 * GIB, "A100", 8),
    "trainium": _offer("aws", "us-east-1", "trn1.32xlarge", 128, 512 * GIB, "Trainium", 16),
    "azure": _offer("azure", "eastus", "Standard_NC24ads_A100_v4", 24, 220 * GIB, "A100-80GB", 1),
    "amd": _offer("azure", "eastus", "Standard_ND96isr_MI300X_v5", 96, 1850 * GIB, "MI300X", 8),
    "attached": _offer("gcp", "us-central1", "n1-standard-8+T4x1", 8, 30 * GIB, "T4", 1),
    "h100": _offer("gcp", "us-central1", "a3-highgpu-8g", 208, 1872 * GIB, "H100", 8),
    "tpu": _offer("gcp", "us-central1", "tpu-v5litepod-8", 224, 384 * GIB, "TPU-v5e", 8),
    "cpu": _offer("gcp", "us-central1", "n2-standard-8", 8, 32 * GIB, None, 0),
}


@pytest.fixture(scope="session")
def configuration() -> Callable[..., Configuration]:
    """`configuration("a100", nodes=2, spot=True)`."""

    def make(offer: str, nodes: int = 1, batch_size: int = 64, spot: bool = False) -> Configuration:
        return Configuration(OFFERS[offer], nodes, batch_size, spot)

    return make


# `probe` and `torchrun` answer with their own name and arguments; srun runs one task, as on the second node.
_STUBS = {
    "probe": r'printf "%s\0" "${0##*/}" "$@"',
    "torchrun": r'printf "%s\0" "${0##*/}" "$@"',
    "mpirun": r'printf "%s\0" "${0##*/}" "$@"',
    "srun": r'while [[ "$1" == --* ]]; do shift; done; SLURM_NODEID=1 exec "$@"',
    "scontrol": "echo first; echo second",
}


@pytest.fixture(scope="session")
def run_script(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Runs a script in bash where torchrun and the like only print; the words they were given."""
    programs = tmp_path_factory.mktemp("programs")
    for name, body in _STUBS.items():
        path = programs / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def run(script: str, **variables: str) -> list[str]:
        environment = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "LC_ALL": "C", **variables}
        done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, check=True)
        assert done.stderr == b""
        return [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]

    return run


@pytest.fixture(scope="session")
def skypilot_python() -> Path:
    """An interpreter that has SkyPilot: its pins (click, uvicorn) are kept out of the project's own."""
    given = os.environ.get("TRIMTAB_SKYPILOT_PYTHON")
    if not given:
        pytest.skip("needs an interpreter with skypilot==0.14.1: set TRIMTAB_SKYPILOT_PYTHON to it")
    return Path(given)


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Answers with a port on loopback that nobody listens on."""

    def find() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return find


@pytest.fixture(scope="module")
def cluster(free_port: Callable[[], int]) -> Iterator[SmallSlurm]:
    """A Slurm of one's own."""
    with open_slurm(free_port) as opened:
        yield opened
