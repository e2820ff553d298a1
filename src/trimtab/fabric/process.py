"""A host's agent with all that belongs to it: begun on this machine, and ended for good."""

import contextlib
from collections.abc import Callable, Iterator

from trimtab.fabric.agent import Agent, forget_agent
from trimtab.fabric.failover import Failover
from trimtab.fabric.frr import Daemons, host_files
from trimtab.fabric.journal import RUN
from trimtab.fabric.reconcile import reconciler_of
from trimtab.fabric.status import Sessions, ask_sessions
from trimtab.fabric.topology import Host


@contextlib.contextmanager
def agent_of(host: Host, tell: Callable[[Failover], None] = lambda failover: None) -> Iterator[Agent]:
    """An agent for a host whose plan is applied, in this network namespace; FRR runs, and goes on."""
    daemons = Daemons(RUN / host.name, host_files(host))
    daemons.start()
    with contextlib.ExitStack() as stack:
        workers = []
        for tenant in host.tenants:
            workers.append(reconciler_of(host, tenant))
            stack.callback(workers[-1].close)
        yield Agent(host, daemons, workers=workers, tell=tell)


def end_routing(name: str) -> None:
    """End FRR's daemons of that host and remove what its agents wrote; not while one runs."""
    forget_agent(name)
    Daemons(RUN / name, {}).stop()


def sessions_of(name: str) -> Sessions:
    """What FRR says about that host's sessions now."""
    return ask_sessions(Daemons(RUN / name, {}).vtysh)
