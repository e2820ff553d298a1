"""All that a host's file says, put up in order and taken down in order: network, routing, data planes."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from trimtab.core import BadInputError
from trimtab.fabric.agent import agent_runs
from trimtab.fabric.apply import (
    apply_plan,
    commands,
    dropped_devices,
    need_root,
    plan_here,
    undo,
    undo_commands,
)
from trimtab.fabric.frr import Daemons, check_untouched, find_programs, host_files, sealed
from trimtab.fabric.journal import folder
from trimtab.fabric.process import end_routing
from trimtab.fabric.reconcile import remove_planes
from trimtab.fabric.topology import Host
from trimtab.kernel import processes


def put_up(host: Host) -> tuple[str, ...]:
    """Its network, ready for an agent; the commands that it took. Refused before anything is changed."""
    need_root()
    _check(host)
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


def _check(host: Host) -> None:
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
