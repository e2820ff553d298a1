"""The dead man's switch: who is set free, and when."""

import json
import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from trimtab.kernel import ContainerGroup, DeadManSwitch, Hierarchy, LimitedGroup, NoGroupError, SafeLimits
from trimtab.kernel.deadman import listen, set_free

A, B = SafeLimits("/a", 0.5, 1e8), SafeLimits("/b", None, None)


def _told(
    *lines: dict[str, object], patience: float = 60.0, ends_after: float = 0.0
) -> list[list[SafeLimits]]:
    """Whom it frees when it is told these lines and then nothing more until the end."""
    freed = list[list[SafeLimits]]()
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source:
        thread = threading.Thread(target=listen, args=(source, patience, freed.append))
        thread.start()
        os.write(writing, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        time.sleep(ends_after)
        os.close(writing)
        thread.join()
    return freed


def _line(limits: SafeLimits) -> dict[str, object]:
    return {"path": limits.path, "cpus": limits.cpus, "memory": limits.memory}


def test_when_the_lines_end_everyone_still_known_is_set_free() -> None:
    assert _told(_line(A), _line(B), {}, {"gone": "/a"}) == [[B]]


def test_after_a_farewell_nothing_is_done() -> None:
    assert _told(_line(A), {"end": True}) == []


def test_silence_sets_free_once_and_the_end_once_more() -> None:
    assert _told(_line(A), patience=0.05, ends_after=0.4) == [[A], [A]]


def test_a_real_one_tells_an_agent_that_slept_that_everyone_was_set_free(tmp_path: Path) -> None:
    switch = DeadManSwitch(Hierarchy(1, dict.fromkeys(("cpu", "cpuacct", "memory"), tmp_path)), patience=0.2)
    assert switch.guard(A)
    while switch.beat():
        time.sleep(1.0)  # longer than its patience
    assert switch.alive
    switch.end()
    assert not switch.alive


def test_a_pod_and_its_containers_are_set_free_in_whatever_order_they_came() -> None:
    """In version 1 a container's limit must not be above its pod's, when either is changed."""
    with ExitStack() as stack:
        try:
            root = stack.enter_context(LimitedGroup.create())
        except NoGroupError as error:
            pytest.skip(f"needs the right to make control groups: {error}")
        hierarchy = Hierarchy(root.version, root.folders)
        groups = {}
        for path in ("/wide", "/wide/a", "/narrow", "/narrow/a"):
            for folder in root.folders.values():
                (folder / path[1:]).mkdir()
                stack.callback((folder / path[1:]).rmdir)
            groups[path] = stack.enter_context(ContainerGroup(hierarchy, path))
        now = {"/wide": 2.0, "/wide/a": 1.5, "/narrow": 0.1, "/narrow/a": 0.05}
        safe = {"/wide": 0.5, "/wide/a": 0.4, "/narrow": 1.0, "/narrow/a": 0.8}
        for path, cpus in now.items():
            groups[path].limit_cpus(cpus)
        set_free([SafeLimits(path, cpus, None) for path, cpus in safe.items()], hierarchy)
        assert {path: group.cpu_limit() for path, group in groups.items()} == pytest.approx(safe)
