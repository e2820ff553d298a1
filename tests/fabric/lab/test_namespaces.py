"""What a killed lab left is removed by the next one; what belongs to somebody alive is not touched."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.core import BadInputError
from trimtab.fabric.journal import RUN
from trimtab.fabric.lab.layout import make_namespace, sweep
from trimtab.fabric.machine import NAMESPACES
from trimtab.kernel import Owner, environment, processes

BUILD = """
import sys
from trimtab.fabric.lab.lab import Lab
with Lab() as lab:
    lab.run(0, ["sleep", "1000"])
    print(*(node.namespace for node in (*lab.hosts, *lab.switches)), flush=True)
    sys.stdin.read()
"""


def inside(names: list[str]) -> set[int]:
    wanted = {os.stat(NAMESPACES / name).st_ino for name in names}
    found = set()
    for process in processes():
        try:
            if os.stat(f"/proc/{process.pid}/ns/net").st_ino in wanted and not process.zombie:
                found.add(process.pid)
        except OSError:
            continue
    return found


def test_a_killed_lab_is_swept_and_a_living_one_is_not(can_build: None) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", BUILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        names = child.stdout.readline().split()
        assert len(names) == 4
        running = inside(names)
        assert len(running) == 4 * 3 + 1
        folders = {environment(pid).get("TRIMTAB_FRR", "").split(" ")[0] for pid in running}
        assert all((RUN / name / "bgpd.vty").exists() for name in names)
        assert not set(names) & set(sweep())
        assert inside(names) == running
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert inside(names) == running, "daemons outlive who started them"
    assert set(names) <= set(sweep())
    assert not any((NAMESPACES / name).exists() or (RUN / name).exists() for name in names)
    assert not {process.pid for process in processes() if not process.zombie} & running
    assert not any([*Path("/var/tmp/frr").glob(f"*.{pid}")] for pid in running)
    assert len(folders) == 4 * 3 + 1
    assert not set(names) & set(sweep())


def test_a_namespace_that_exists_is_not_taken(can_build: None) -> None:
    name = Owner.current().name("taken")
    make_namespace(name)
    try:
        with pytest.raises(BadInputError, match=name):
            make_namespace(name)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
