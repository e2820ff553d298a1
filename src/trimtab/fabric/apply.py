"""Applying a plan and undoing it: only differences are changed, and the journal is written first."""

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
from trimtab.fabric.plan import HostPlan, plan, view_machine
from trimtab.fabric.reconcile.reconciler import remove_planes
from trimtab.fabric.steps import MADE, OTHERWISE, PlanStep
from trimtab.fabric.topology import FabricHost
from trimtab.kernel import file_lock, processes


def plan_here(host: FabricHost, netns: str | None = None) -> HostPlan:
    """The plan for this machine; `netns` is the host's network namespace, None the current one."""
    with Machine(netns) as machine:
        return plan(host, view_machine(host, machine, _journal(host.name, machine)))


def commands(planned: HostPlan, netns: str | None = None) -> tuple[tuple[str, bool], ...]:
    """Every command, in order, and whether it would change something; nothing is changed."""
    with Machine(netns) as machine:
        stale = [entry for entry in _stale(planned, _journal(planned.name, machine)) if entry.undo_command]
        remade = {entry.step.resource.device for entry in stale if isinstance(entry.step.resource, MADE)}
        return (
            *((entry.undo_command, True) for entry in reversed(stale)),
            *(
                (step.command, step.resource.device in remade or not step.is_done(machine))
                for step in planned.steps
            ),
        )


def undo_commands(name: str, netns: str | None = None) -> tuple[str, ...]:
    """The commands that would undo the fabric of that name, in order; nothing is changed."""
    with Machine(netns) as machine:
        entries = _to_undo(_known_journal(name, machine).entries, machine)
        return tuple(entry.undo_command for entry in entries)


def apply_plan(planned: HostPlan, netns: str | None = None) -> tuple[str, ...]:
    """Make the steps that are not done yet; the commands that were needed.

    Steps of an earlier plan of the same name that this one does not have are undone first. When a step fails,
    all that this call did is undone; after a kill, applying again or `undo` continues from the journal.
    """
    need_root()
    with _locked(planned.name), Machine(netns) as machine:
        journal = _journal(planned.name, machine) or Journal(planned.name, machine.identity())
        stale = _stale(planned, journal)
        removed = _undo(stale, machine)
        journal = journal.without(stale)
        missing = tuple(
            Entry(step, None if value == OTHERWISE else value)
            for step in planned.steps
            if (value := step.resource.read(machine)) != step.desired
        )
        journal.with_entries(missing).write()
        try:
            for entry in missing:
                _put(entry.step, machine, entry.step.desired)
            for step in planned.steps:
                if not step.is_done(machine):
                    raise TrimtabError(
                        f"`{step.command}` did not last: another program manages "
                        f"{step.resource.device or 'this setting'}; "
                        f"configure NetworkManager, systemd-networkd or the like to leave it alone"
                    )
        except BaseException:
            with contextlib.suppress(TrimtabError):  # then the journal still has the entries that are left
                _undo(missing, machine)
                journal.write()
            raise
        return (*removed, *(entry.step.command for entry in missing))


def undo(name: str, netns: str | None = None) -> tuple[str, ...]:
    """Remove what was made and restore what was set, unless something else has changed it since."""
    need_root()
    with _locked(name), Machine(netns) as machine:
        try:
            journal = _known_journal(name, machine)
        except NotFoundError:
            Journal(name, "").write()  # a journal whose network namespace is gone is removed
            raise
        done = _undo(journal.entries, machine)
        replace(journal, entries=()).write()
        return done


def _undo(entries: tuple[Entry, ...], machine: Machine) -> tuple[str, ...]:
    """The commands that were needed. After a failure the rest is undone too, then the first is raised."""
    errors = list[TrimtabError]()
    done = list[str]()
    for entry in _to_undo(entries, machine):
        try:
            _put(entry.step, machine, entry.before)
            done.append(entry.undo_command)
        except TrimtabError as error:
            if entry.is_unchanged(machine):  # else another program was faster
                errors.append(error)
    if errors:
        raise errors[0]
    return tuple(done)


def _to_undo(entries: tuple[Entry, ...], machine: Machine) -> tuple[Entry, ...]:
    """Last first, without resources that something else has changed or removed since."""
    return tuple(entry for entry in reversed(entries) if entry.undo_command and entry.is_unchanged(machine))


def _put(step: PlanStep, machine: Machine, value: str | None) -> None:
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        step.resource.put(machine, value)
    except (NetlinkError, OSError) as error:
        why = error.args[1] if len(error.args) > 1 else error
        raise TrimtabError(
            f"the kernel refuses `{step.resource.command(value)}`: {str(why).lower()}"
        ) from None


def _stale(planned: HostPlan, journal: Journal | None) -> tuple[Entry, ...]:
    """Entries of an earlier plan whose resources this one does not have."""
    resources = {step.resource for step in planned.steps}
    entries = journal.entries if journal else ()
    return tuple(entry for entry in entries if entry.step.resource not in resources)


def _known_journal(name: str, machine: Machine) -> Journal:
    journal = _journal(name, machine)
    if journal is not None:
        return journal
    others = ", ".join(other.name for other in journals() if other.where == machine.identity())
    raise NotFoundError(f"no fabric {name} is up here; {f'{others} is up' if others else 'none is up'}")


def _journal(name: str, machine: Machine) -> Journal | None:
    """The journal of the fabric in this network namespace; None if its namespace no longer exists."""
    journal = read_journal(name)
    if journal is None or journal.where == machine.identity():
        return journal
    if journal.is_alive():
        raise BadInputError(f"the fabric {name} is up in another network namespace; take it down there first")
    return None


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    """Hold the lock of the fabric of that name; its folder is removed if it has no journal at the end."""
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
    if os.geteuid() != 0:
        raise BadInputError("changing the network needs root; use sudo, or see the commands with --dry-run")


def put_up(host: FabricHost) -> tuple[str, ...]:
    """Set up the host's network for an agent; the commands that were needed. Refuses before any change."""
    need_root()
    find_programs()
    if agent_runs(host.name):
        raise BadInputError(f"an agent runs for {host.name} already; end it, then this starts another one")
    daemons = Daemons(folder(host.name), host_files(host))
    for name in host_files(host):
        check_untouched(daemons.folder / f"{name}.conf")
    own_zebra = daemons.process("zebra")
    for process in processes({"zebra"}):
        if (own_zebra is None or process.pid != own_zebra.pid) and _is_in_this_namespace(process.pid):
            raise BadInputError(
                f"FRR already runs here as process {process.pid}, and two would undo each other's routes; "
                f"end it first, as with systemctl disable --now frr"
            )
    planned = plan_here(host)
    with Machine() as machine:
        stale = _stale(planned, _journal(planned.name, machine))
    if {entry.step.resource.device for entry in stale} - {step.resource.device for step in planned.steps}:
        remove_planes()  # they are on dropped uplinks too; the agent attaches them to the new ones
    return apply_plan(planned)


def put_up_commands(host: FabricHost) -> Iterator[str]:
    """The commands of `put_up` and an agent, as lines for a shell; those already done, as comments."""
    for command, needed in commands(plan_here(host)):
        yield command if needed else f"# already so: {command}"
    files = host_files(host)
    daemons = Daemons(folder(host.name), files)
    for name, content in files.items():
        command = shlex.join(map(str, daemons.command(name)))
        path = daemons.folder / f"{name}.conf"
        if daemons.process(name) and path.is_file() and path.read_text() == sealed(content):
            yield f"# already so: {command}"
        else:
            yield f"cat > {path} <<'END'\n{sealed(content)}END"
            yield f"{command} &"


def take_down(name: str) -> tuple[str, ...]:
    """Remove the fabric and restore what was before; the commands needed. Refuses while an agent runs."""
    need_root()
    undo_commands(name)  # refuses where there is no fabric of that name
    end_routing(name)
    remove_planes()
    return undo(name)


def _is_in_this_namespace(pid: int) -> bool:
    try:
        return os.path.samefile(Path("/proc", str(pid), "ns/net"), "/proc/thread-self/ns/net")
    except OSError:  # it has ended
        return False
