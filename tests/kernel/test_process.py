"""Processes as the kernel shows them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trimtab.kernel import (
    Owner,
    end_groups,
    environment,
    network_bytes,
    process_io,
    processes,
    read_process,
    thread_waits,
    tree,
)


def wait_for(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.02)


def test_a_process_is_read_even_when_its_name_holds_parentheses() -> None:
    name = "a) R (b"
    script = f"import ctypes, time; ctypes.CDLL(None).prctl(15, {name.encode()!r}, 0, 0, 0); time.sleep(30)"
    child = subprocess.Popen([sys.executable, "-c", script])
    try:
        path = Path(f"/proc/{child.pid}/stat")
        wait_for(lambda: name in path.read_text())
        found = read_process(child.pid)
        assert found is not None
        assert found.parent == os.getpid()
        assert found.memory > 0
        assert not found.zombie
        assert [each.pid for each in processes({name}) if each.parent == os.getpid()] == [child.pid]
    finally:
        child.kill()
        child.wait()
    assert read_process(child.pid) is None


def test_a_tree_holds_descendants_and_keeps_those_whose_parent_ended() -> None:
    child = subprocess.Popen(["sh", "-c", "(sleep 30 & sleep 30 & wait) & wait"])
    try:
        wait_for(lambda: len(tree(child.pid)) == 4)
        before = tree(child.pid)
        assert len(before) == 4
        child.kill()
        child.wait()
        after = tree(child.pid, also=before)
        assert len(after) == 3
        assert {p.pid for p in after} < {p.pid for p in before}
    finally:
        for member in tree(child.pid, also=before):
            os.kill(member.pid, 9)


def test_those_of_a_name_are_found_and_no_others() -> None:
    with subprocess.Popen(["sleep", "30"]) as child:
        try:
            wait_for(lambda: child.pid in {each.pid for each in processes({"sleep"})})
            found = {each.pid for each in processes({"sleep", "nobody"})}
            assert child.pid in found
            assert os.getpid() not in found
            assert list(processes({"nobody"})) == []
        finally:
            child.kill()


def test_a_group_ends_with_what_its_leader_started() -> None:
    words = ["sh", "-c", "sleep 60 & echo $!; wait"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    end_groups([child])
    assert (child.returncode, child.stdout.closed) == (-signal.SIGKILL, True)
    wait_for(lambda: (left := read_process(grandchild)) is None or left.zombie)
    left = read_process(grandchild)
    assert left is None or left.zombie


def test_disk_network_and_environment_of_a_process_are_read() -> None:
    assert process_io(os.getpid()) is not None
    assert network_bytes(os.getpid()) is not None
    child = subprocess.Popen(["sleep", "30"], env={"MARK": "a=b"})
    try:
        wait_for(lambda: environment(child.pid))
        assert environment(child.pid) == {"MARK": "a=b"}
    finally:
        child.kill()
        child.wait()


def test_a_process_that_is_gone_gives_nothing() -> None:
    assert read_process(4_000_000) is None
    assert process_io(4_000_000) is None
    assert network_bytes(4_000_000) is None
    assert environment(4_000_000) == {}


def test_an_owner_survives_its_name_and_knows_the_dead() -> None:
    me = Owner.current()
    assert Owner.of(me.name("x1")) == me
    assert not me.is_gone()
    assert Owner(me.namespace, me.pid, me.started + 1).is_gone()
    assert not Owner(me.namespace + 1, 4_000_000, 1).is_gone()
    assert Owner.of("trimtab-notes") is None


def test_two_that_want_one_core_wait_for_each_other() -> None:
    core = min(os.sched_getaffinity(0))
    busy = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", "while True: pass"],
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        for _ in range(2)
    ]
    try:
        wait_for(lambda: all(sum(thread_waits(each.pid).values()) > 0.1 for each in busy))
        assert all(sum(thread_waits(each.pid).values()) > 0.1 for each in busy)
    finally:
        for each in busy:
            each.kill()
            each.wait()
    assert thread_waits(4_000_000) == {}
