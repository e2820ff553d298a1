"""Making a plan so, and undoing it: only what differs is changed, and what was before is on file first."""

import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from trimtab.core import BadInputError, NotFoundError, TrimtabError
from trimtab.fabric.agent import agent_runs, end_routing
from trimtab.fabric.frr.configuration import check_untouched, host_files, sealed
from trimtab.fabric.frr.daemons import Daemons, find_programs
from trimtab.fabric.journal import Entry, Journal, folder, journals, read_journal
from trimtab.fabric.machine import Machine
from trimtab.fabric.plan import Plan, look, plan
from trimtab.fabric.reconcile.reconciler import remove_planes
from trimtab.fabric.steps import MADE, OTHERWISE, Step
from trimtab.fabric.topology import Host
from trimtab.kernel import file_lock, processes


def plan_here(host: Host, netns: str | None = None) -> Plan:
    """The plan for the machine as it is; `netns` is the host's network namespace, None the current one."""
    with Machine(netns) as machine:
        return plan(host, look(host, machine, _journal(host.name, machine)))


def commands(planned: Plan, netns: str | None = None) -> tuple[tuple[str, bool], ...]:
    """Every command, in order, and whether it has something to do; nothing is touched."""
    with Machine(netns) as machine:
        stale = [entry for entry in _stale(planned, _journal(planned.name, machine)) if entry.words]
        anew = {entry.step.place.device for entry in stale if isinstance(entry.step.place, MADE)}
        return (
            *((entry.words, True) for entry in reversed(stale)),
            *((step.words, step.place.device in anew or not step.is_done(machine)) for step in planned.steps),
        )


def dropped_devices(planned: Plan, netns: str | None = None) -> frozenset[str]:
    """Devices that an earlier plan of that name used and this one does not."""
    with Machine(netns) as machine:
        stale = _stale(planned, _journal(planned.name, machine))
    used = {step.place.device for step in planned.steps}
    return frozenset(entry.step.place.device for entry in stale) - used


def undo_commands(name: str, netns: str | None = None) -> tuple[str, ...]:
    """The commands that would undo what was done, in order; nothing is touched."""
    with Machine(netns) as machine:
        return tuple(entry.words for entry in _to_undo(_known_journal(name, machine).entries, machine))


def apply_plan(planned: Plan, netns: str | None = None) -> tuple[str, ...]:
    """Do what is not done yet; the commands that it took.

    What an earlier plan of the same name did and this one does not say is undone first. When a step fails,
    all that this call did is undone; after a kill, applying again or `undo` picks up from the journal.
    """
    need_root()
    with _alone(planned.name), Machine(netns) as machine:
        journal = _journal(planned.name, machine) or Journal(planned.name, machine.identity())
        stale = _stale(planned, journal)
        removed = _undo(stale, machine)
        journal = journal.without(stale)
        missing = tuple(
            Entry(step, None if now == OTHERWISE else now)
            for step in planned.steps
            if (now := step.place.now(machine)) != step.wanted
        )
        journal.with_entries(missing).write()
        try:
            for entry in missing:
                _try(entry.step, machine, entry.step.wanted)
            _check(planned, machine)
        except BaseException:
            with contextlib.suppress(TrimtabError):  # then the journal goes on saying what is left
                _undo(missing, machine)
                journal.write()
            raise
        return (*removed, *(entry.step.words for entry in missing))


def undo(name: str, netns: str | None = None) -> tuple[str, ...]:
    """Remove what was made and restore what was set, as far as nobody else has changed it since."""
    need_root()
    with _alone(name), Machine(netns) as machine:
        try:
            journal = _known_journal(name, machine)
        except NotFoundError:
            Journal(name, "").write()  # what may be on file went with its network namespace
            raise
        done = _undo(journal.entries, machine)
        replace(journal, entries=()).write()
        return done


def _undo(entries: tuple[Entry, ...], machine: Machine) -> tuple[str, ...]:
    """The commands it took. What fails does not keep the rest from being undone, and is said at the end."""
    failed = list[TrimtabError]()
    done = list[str]()
    for entry in _to_undo(entries, machine):
        try:
            _try(entry.step, machine, entry.before)
            done.append(entry.words)
        except TrimtabError as error:
            if entry.is_ours(machine):  # else somebody was faster
                failed.append(error)
    if failed:
        raise failed[0]
    return tuple(done)


def _to_undo(entries: tuple[Entry, ...], machine: Machine) -> tuple[Entry, ...]:
    """Last first; what is not as we made it is somebody else's now, or gone."""
    return tuple(entry for entry in reversed(entries) if entry.words and entry.is_ours(machine))


def _try(step: Step, machine: Machine, value: str | None) -> None:
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        step.place.put(machine, value)
    except (NetlinkError, OSError) as error:
        why = error.args[1] if len(error.args) > 1 else error
        raise TrimtabError(f"the kernel refuses `{step.place.words(value)}`: {str(why).lower()}") from None


def _check(planned: Plan, machine: Machine) -> None:
    """Look again: other programs may manage devices too, and have their own ideas."""
    for step in planned.steps:
        if not step.is_done(machine):
            raise TrimtabError(
                f"`{step.words}` did not last: something else manages {step.place.device or 'this'}; "
                f"tell NetworkManager, systemd-networkd or whatever it is to leave it alone"
            )


def _stale(planned: Plan, journal: Journal | None) -> tuple[Entry, ...]:
    """What an earlier plan did and this one says nothing about."""
    places = {step.place for step in planned.steps}
    return tuple(entry for entry in (journal.entries if journal else ()) if entry.step.place not in places)


def _known_journal(name: str, machine: Machine) -> Journal:
    journal = _journal(name, machine)
    if journal is not None:
        return journal
    known = ", ".join(each.name for each in journals() if each.where == machine.identity())
    raise NotFoundError(f"no fabric {name} is up here{f'; {known} is' if known else ', nor any other'}")


def _journal(name: str, machine: Machine) -> Journal | None:
    """Of the fabric that is up; one that went with its network namespace is forgotten."""
    journal = read_journal(name)
    if journal is None or journal.where == machine.identity():
        return journal
    if journal.is_alive():
        raise BadInputError(f"the fabric {name} is up in another network namespace; take it down there first")
    return None


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    """Nobody else changes the fabric of that name meanwhile; an empty folder of its does not stay."""
    lock = folder(name) / "lock"
    with file_lock(lock, f"another command is changing the fabric {name}; try again when it has ended"):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if not (folder(name) / "journal.json").exists():
                    lock.unlink()
                    folder(name).rmdir()


def need_root() -> None:
    """A sentence where nothing can be changed anyway."""
    if os.geteuid() != 0:
        raise BadInputError("changing the network needs root; try it with sudo, or look at --dry-run")


def put_up(host: Host) -> tuple[str, ...]:
    """Its network, ready for an agent; the commands that it took. Refused before anything is changed."""
    need_root()
    _check_before_changes(host)
    planned = plan_here(host)
    if dropped_devices(planned):
        remove_planes()  # they are on uplinks too; the agent puts them where they belong now
    return apply_plan(planned)


def put_up_commands(host: Host) -> Iterator[str]:
    """What `put_up` and an agent would do, as lines for a shell; what is so already, as comments."""
    for words, needed in commands(plan_here(host)):
        yield words if needed else f"# already so: {words}"
    files = host_files(host)
    daemons = Daemons(folder(host.name), files)
    for name, content in files.items():
        words = shlex.join(map(str, daemons.words(name)))
        path = daemons.folder / f"{name}.conf"
        if daemons.process(name) and path.is_file() and path.read_text() == sealed(content):
            yield f"# already so: {words}"
        else:
            yield f"cat > {path} <<'END'\n{sealed(content)}END"
            yield f"{words} &"


def take_down(name: str) -> tuple[str, ...]:
    """Remove all of it and restore what was before; the commands that it took. Not while an agent runs."""
    need_root()
    undo_commands(name)  # refuses where there is nothing of that name
    end_routing(name)
    remove_planes()
    return undo(name)


def _check_before_changes(host: Host) -> None:
    """What would be refused only after the network was changed."""
    find_programs()
    if agent_runs(host.name):
        raise BadInputError(f"an agent runs for {host.name} already; end it, then this starts another one")
    daemons = Daemons(folder(host.name), host_files(host))
    for name in host_files(host):
        check_untouched(daemons.folder / f"{name}.conf")
    ours = daemons.process("zebra")
    for process in processes():
        if _is_zebra_here(process.pid) and (ours is None or process.pid != ours.pid):
            raise BadInputError(
                f"FRR runs here already, as process {process.pid}, and two would undo each other's routes; "
                f"end it first, as with systemctl disable --now frr"
            )


def _is_zebra_here(pid: int) -> bool:
    """Whether it is FRR's daemon for routes, in our network namespace."""
    proc = Path("/proc", str(pid))
    try:
        name = (proc / "comm").read_text().strip()
        return name == "zebra" and os.path.samefile(proc / "ns/net", "/proc/thread-self/ns/net")
    except OSError:  # it has ended
        return False
