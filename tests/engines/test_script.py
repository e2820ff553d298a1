"""The script of a node, under the real torchrun."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trimtab.core import Configuration, Workload
from trimtab.engines.jobfiles.job import JobFile
from trimtab.engines.jobfiles.script import Rendezvous, node_script

_WORKER = """
import os, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
print(*(os.environ[name] for name in names), *sys.argv[1:], file=open(f"rank-{os.environ['RANK']}", "w"))
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch==2.13.0")
@pytest.mark.parametrize("command", ["python -u worker.py -b 32", "torchrun worker.py -b 32"])
def test_two_nodes_meet_under_torchrun(
    configuration: Callable[..., Configuration], tmp_path: Path, free_port: Callable[[], int], command: str
) -> None:
    (tmp_path / "worker.py").write_text(_WORKER)
    job = JobFile(Workload("a", command=tuple(command.split())), configuration("cpu", nodes=2))
    script = node_script(job, Rendezvous('"$PLACE"', "127.0.0.1", str(free_port()), workers="2"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    nodes = [
        subprocess.Popen(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "PLACE": rank},
            stderr=subprocess.PIPE,
        )
        for rank in ("0", "1")
    ]
    for node in nodes:
        _, errors = node.communicate(timeout=60)
        assert node.returncode == 0, errors.decode()
    said = [(tmp_path / f"rank-{rank}").read_text() for rank in range(4)]
    assert said == [f"{rank} {rank % 2} 4 -b 64\n" for rank in range(4)]
