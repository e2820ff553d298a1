"""Limits restored from a journal: only of the groups that were recorded, and of agents that ended."""

import errno
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from trimtab.core import StorageError
from trimtab.kernel import (
    ContainerGroup,
    Hierarchy,
    LimitedGroup,
    LimitJournal,
    Owner,
    SafeLimits,
    journals,
    restore_journal,
    restore_orphans,
)

MIB = 2**20


class ContainersWithJournal:
    """A control group of version 1 with containers below it, and a folder of journals."""

    def __init__(self, stack: ExitStack, root: LimitedGroup, folder: Path) -> None:
        self._stack = stack
        self.hierarchy = Hierarchy(root.version, root.folders)
        self.folder = folder

    def make(self, name: str) -> ContainerGroup:
        for root in self.hierarchy.folders.values():
            (root / name).mkdir()
            self._stack.callback(_remove, root / name)
        return self._stack.enter_context(ContainerGroup(self.hierarchy, f"/{name}"))

    def squeeze(self, group: ContainerGroup) -> SafeLimits:
        """Change a group's limits as an agent does; returns those it had."""
        safe = SafeLimits(group.path, group.cpu_limit(), group.memory_limit(), group.inode)
        group.limit_cpus(0.1)
        group.limit_memory(32 * MIB)
        group.write_text("memory.oom_control", "1")
        return safe

    def journal_of(self, owner: Owner, *limits: SafeLimits) -> Path:
        journal = LimitJournal(self.folder, self.hierarchy)
        journal.path = self.folder / f"{owner.name('a')}.json"
        journal.write({entry.path: entry for entry in limits})
        return journal.path


def _remove(folder: Path) -> None:
    if folder.exists():
        folder.rmdir()


@pytest.fixture
def place(new_group: Callable[..., LimitedGroup], tmp_path: Path) -> Iterator[ContainersWithJournal]:
    with ExitStack() as stack:
        yield ContainersWithJournal(stack, new_group(version=1), tmp_path / "limits")


@pytest.fixture
def ended() -> Owner:
    """A process that has ended."""
    child = subprocess.Popen(["sleep", "60"])
    me = Owner.current()
    owner = Owner(me.namespace, child.pid, 1)
    child.kill()
    child.wait()
    return owner


def _limits(group: ContainerGroup) -> tuple[float | None, float | None, bool]:
    killer_is_off = "oom_kill_disable 1" in group.read_text("memory.oom_control")
    return group.cpu_limit(), group.memory_limit(), not killer_is_off


def test_limits_of_an_agent_that_ended_are_restored_and_its_journal_is_removed(
    place: ContainersWithJournal, ended: Owner
) -> None:
    limited, free = place.make("limited"), place.make("free")
    limited.limit_cpus(0.7)
    limited.limit_memory(64 * MIB)
    place.journal_of(ended, place.squeeze(limited), place.squeeze(free))
    restored = restore_orphans(place.folder)
    assert sorted(restored.paths) == ["/free", "/limited"]
    assert restored.failures == {}
    assert _limits(limited) == (0.7, 64 * MIB, True)
    assert _limits(free) == (None, None, True)
    assert journals(place.folder) == []
    assert restore_orphans(place.folder).paths == ()


def test_limits_of_an_agent_that_runs_are_left_alone(place: ContainersWithJournal) -> None:
    group = place.make("a")
    path = place.journal_of(Owner.current(), place.squeeze(group))
    assert restore_orphans(place.folder).paths == ()
    assert _limits(group) == (0.1, 32 * MIB, False)
    assert restore_journal(path, remove=False).paths == ("/a",)
    assert _limits(group) == (None, None, True)
    assert path.exists()


def test_a_new_group_with_the_same_path_is_left_alone(place: ContainersWithJournal, ended: Owner) -> None:
    group = place.make("a")
    place.journal_of(ended, place.squeeze(group))
    group.close()
    for root in place.hierarchy.folders.values():
        (root / "a").rmdir()
    another = place.make("a")
    another.limit_cpus(0.3)
    assert restore_orphans(place.folder).paths == ()
    assert another.cpu_limit() == pytest.approx(0.3)
    assert journals(place.folder) == []


def test_a_journal_from_before_the_last_boot_restores_nothing(
    place: ContainersWithJournal, ended: Owner
) -> None:
    group = place.make("a")
    path = place.journal_of(ended, place.squeeze(group))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot": "another"}))
    assert restore_orphans(place.folder).paths == ()
    assert _limits(group) == (0.1, 32 * MIB, False)
    assert not path.exists()
    group.write_text("memory.oom_control", "0")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"boot": 1, "version": 1, "folders": 3}', "\0"])
def test_a_damaged_journal_is_named_and_stays(
    place: ContainersWithJournal, ended: Owner, content: str
) -> None:
    path = place.journal_of(ended, SafeLimits("/a", None, None))
    path.write_text(content)
    assert list(restore_orphans(place.folder).failures) == [str(path)]
    assert path.exists()


def test_the_journal_and_its_folder_are_flushed_before_it_counts(
    place: ContainersWithJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = list[str]()
    flush = os.fsync

    def fsync(file: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{file}"))
        flush(file)

    monkeypatch.setattr(os, "fsync", fsync)
    journal = LimitJournal(place.folder, place.hierarchy)
    journal.write({"/a": SafeLimits("/a", None, None)})
    assert Path(flushed[0]).parent == place.folder
    assert flushed[-1] == str(place.folder)


def test_a_full_disk_is_an_error(place: ContainersWithJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    journal = LimitJournal(place.folder, place.hierarchy)
    with pytest.raises(StorageError, match=str(journal.path)):
        journal.write({"/a": SafeLimits("/a", None, None)})
    assert not journal.path.exists()


def test_a_journal_without_limits_is_no_file(place: ContainersWithJournal) -> None:
    journal = LimitJournal(place.folder, place.hierarchy)
    journal.write({"/a": SafeLimits("/a", None, None)})
    assert journal.path.exists()
    journal.write({})
    assert not journal.path.exists()
