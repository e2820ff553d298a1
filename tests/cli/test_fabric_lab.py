"""`trimtab fabric lab` builds a lab, says how to try it, shows it, and leaves nothing after Ctrl-C."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TRIMTAB = str(Path(sys.executable).parent / "trimtab")


def test_it_is_shown_until_it_is_interrupted(can_build: None) -> None:
    words = [TRIMTAB, "fabric", "lab", "--stock", "--cycle"]
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background ignores it
    ) as child:
        assert child.stdout is not None
        first = child.stdout.readline()
        if first != "2 hosts and 2 switches are ready; try in another terminal:\n":
            pytest.fail(first + child.communicate(timeout=60)[1])
        namespace = child.stdout.readline().split()[3]
        assert Path("/run/netns", namespace).exists()
        lines = iter(child.stdout.readline, "")
        assert any("h1 p1: link up, BFD down" in line for line in lines), "the cycle begins with it"
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
    assert (child.returncode, said) == (130, "trimtab: interrupted; the lab is removed\n")
    owner = namespace.removesuffix("h1")
    assert not [name for name in os.listdir("/run/netns") if name.startswith(owner)]
    assert not [name for name in os.listdir("/run/trimtab/fabric") if name.startswith(owner)]


@pytest.mark.parametrize("hosts", ["1", "1000"])
def test_too_few_or_too_many_hosts_are_refused(trimtab: Callable[..., Any], hosts: str) -> None:
    told = trimtab("fabric", "lab", "--hosts", hosts)
    assert (told.status, told.error) == (2, f"trimtab: a lab has 2 to 100 hosts, not {hosts}\n")
