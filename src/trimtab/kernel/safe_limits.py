"""Limits that containers had before an agent changed them: written to disk first, restored from there.

An agent has one journal, a JSON file named after its process (`Owner`). It is replaced atomically, and file
and folder are flushed to disk, before a limit is changed; it is removed when all limits are restored. So a
journal whose owner has ended means containers with changed limits, and any process can restore them.

A group is restored only if it is the recorded one: the machine has not been booted since (`boot_id`), and a
file of the group has the same inode, which the kernel does not use again for a new group of the same name.
"""

import contextlib
import fcntl
import json
import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO

from trimtab.core import StorageError, TrimtabError, home
from trimtab.kernel.container import (
    ContainerGroup,
    GroupForbiddenError,
    GroupGoneError,
    GroupRefusedError,
)
from trimtab.kernel.hierarchy import Hierarchy
from trimtab.kernel.memory_trap import untrap
from trimtab.kernel.process import Owner, boot_id

_LOCK_WAIT = 2.0  # s for another process that restores the same journal; then both do
_END_WAIT = 5.0  # s for an agent to restore limits and end
_RETRY = 0.01  # s


@dataclass(frozen=True, slots=True)
class SafeLimits:
    """Limits that a container is left with: CPUs and bytes, None for no limit.

    `inode` is that of the group's `ContainerGroup`; None means any group of that path.
    """

    path: str
    cpus: float | None
    memory: float | None
    inode: int | None = None


@dataclass(frozen=True, slots=True)
class RestoredLimits:
    """Paths of groups that have their former limits again, and the reason for each that has not."""

    paths: tuple[str, ...] = ()
    failures: dict[str, str] = field(default_factory=dict)


class LimitJournal:
    """The journal of this process's agent; no file until the first `write`."""

    def __init__(self, folder: Path, hierarchy: Hierarchy) -> None:
        self.path = folder.absolute() / f"{Owner.current().name(secrets.token_hex(4))}.json"
        self._hierarchy = hierarchy

    def write(self, limits: Mapping[str, SafeLimits]) -> None:
        """Replace the journal; on return it is on disk. Raises StorageError if that fails.

        Without any limits there is no journal.
        """
        if not limits:
            self.remove()
            return
        from trimtab.kernel.files import write_whole  # the dead-man switch has no need of it

        content = {
            "boot": boot_id(),
            "version": self._hierarchy.version,
            "folders": {name: str(folder) for name, folder in self._hierarchy.folders.items()},
            "limits": [asdict(entry) for entry in limits.values()],
        }
        write_whole(self.path, json.dumps(content), mode=0o600)
        try:
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise StorageError(f"{self.path.parent} cannot be flushed: {error.strerror}") from None

    def remove(self) -> None:
        """All limits are restored."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def journal_folder() -> Path:
    """The folder of the journals of this machine's agents."""
    return home() / "limits"


def journals(folder: Path) -> list[tuple[Path, Owner]]:
    """The journals in a folder, each with its owner."""
    owners = ((path, Owner.of(path.stem)) for path in sorted(folder.glob("*.json")))
    return [(path, owner) for path, owner in owners if owner is not None]


def restore_orphans(folder: Path, stop_owners: bool = False) -> RestoredLimits:
    """Restore the limits in journals whose owner has ended, and remove these journals.

    With `stop_owners`, end the owners first; one that does not end by itself is killed once its limits are
    restored: with a container's first process, all others are killed too.
    """
    done = list[RestoredLimits]()
    for path, owner in journals(folder):
        suspended = stop_owners and not _end(owner)
        if suspended or owner.is_gone():
            done.append(restore_journal(path))
        if suspended:
            _signal(owner, signal.SIGKILL)
    for script in folder.glob("*.sh"):  # of a `ReleaseHelper` that was killed before its work was done
        maker = Owner.of(script.stem)
        if maker is not None and maker.is_gone():
            script.unlink(missing_ok=True)
    paths = tuple(path for restored in done for path in restored.paths)
    return RestoredLimits(
        paths, {path: reason for restored in done for path, reason in restored.failures.items()}
    )


def _end(owner: Owner) -> bool:
    """Ask a process to end. If it does not, suspend it; returns whether it has ended."""
    _signal(owner, signal.SIGTERM)
    deadline = time.monotonic() + _END_WAIT
    while not owner.is_gone():
        if time.monotonic() > deadline:
            _signal(owner, signal.SIGSTOP)
            return False
        time.sleep(_RETRY)
    return True


def _signal(owner: Owner, number: int) -> None:
    try:
        if not owner.is_gone():
            os.kill(owner.pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise TrimtabError(
            f"the agent with process id {owner.pid} cannot be ended: that takes root"
        ) from None


def restore_journal(path: Path, remove: bool = True) -> RestoredLimits:
    """Restore the limits in a journal; does nothing if another process has done so and removed it.

    With `remove=False` the journal stays, because its owner may go on. It also stays where this process may
    not write control groups.
    """
    try:
        with path.open("rb") as file:
            if remove:
                _lock(file)
                if not path.exists():
                    return RestoredLimits()
            content = json.load(file)
            hierarchy = Hierarchy(
                content["version"], {name: Path(folder) for name, folder in content["folders"].items()}
            )
            limits = [SafeLimits(**entry) for entry in content["limits"]]
            is_current = content["boot"] == boot_id()
            restored = restore_limits(limits, hierarchy) if is_current else RestoredLimits()
            if remove:
                path.unlink(missing_ok=True)
            return restored
    except FileNotFoundError:
        return RestoredLimits()
    except GroupForbiddenError as error:
        return RestoredLimits(failures={str(path): str(error)})
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        return RestoredLimits(failures={str(path): f"the journal cannot be read: {error}; remove it"})


def _lock(file: BinaryIO) -> None:
    """Wait until no other process restores this journal, but not for ever: restoring twice does no harm."""
    deadline = time.monotonic() + _LOCK_WAIT
    while time.monotonic() < deadline:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_RETRY)


def restore_limits(limits: Sequence[SafeLimits], hierarchy: Hierarchy) -> RestoredLimits:
    """Set safe limits from the deepest groups up to pods; some need a second attempt.

    A group's CPU limit must not be above that of a group above it, whichever of the two is set first.
    """
    upwards = sorted(limits, key=lambda entry: -entry.path.count("/"))
    results = {entry: _restore(entry, hierarchy) for entry in upwards}
    results |= {entry: _restore(entry, hierarchy) for entry, result in results.items() if result}
    return RestoredLimits(
        tuple(entry.path for entry, result in results.items() if result == ""),
        {entry.path: result for entry, result in results.items() if result},
    )


def _restore(limits: SafeLimits, hierarchy: Hierarchy) -> str | None:
    """Set the limits before the killer is back, so that no process is killed for too small a limit.

    Returns "", or the reason why a limit could not be set; None if the group has ended.
    """
    try:
        group = ContainerGroup(hierarchy, limits.path)
    except GroupGoneError:
        return None
    except GroupForbiddenError:
        raise
    except TrimtabError as error:
        return str(error)
    reasons = list[str]()
    with group:
        if limits.inode not in (None, group.inode):
            return None  # another group with this path
        actions: tuple[Callable[[], None], ...] = (
            lambda: group.limit_cpus(limits.cpus),
            lambda: group.limit_memory(limits.memory),
            lambda: untrap(group),
        )
        for act in actions:
            try:
                act()
            except GroupGoneError:
                return None
            except GroupForbiddenError:
                raise
            except GroupRefusedError:
                pass  # the kernel has no such limit, so the agent has not changed it
            except TrimtabError as error:
                reasons.append(str(error))
    return "; ".join(reasons)
