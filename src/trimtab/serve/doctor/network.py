"""What the fabric asks of the kernel, each thing tried in a network namespace of its own."""

import shutil
import subprocess
from collections.abc import Iterator

from trimtab.core import one_line
from trimtab.kernel import NetworkNamespace, NoNamespaceError
from trimtab.serve.doctor.finding import Finding, missing, ok
from trimtab.serve.settings import Settings

TRIALS = (
    ("veth", "ip link add name t0 type veth peer name t1", "devices for workers: trimtab fabric"),
    ("bridge", "ip link add name t2 type bridge", "tenants: trimtab fabric"),
    ("vxlan", "ip link add name t3 type vxlan id 1 dstport 4789 local 127.0.0.1", "tunnels: trimtab fabric"),
    ("vxlan external", "ip link add name t4 type vxlan dstport 4790 external", "the fabric's data plane bpf"),
    ("next hops", "ip nexthop add id 1 blackhole", "quick failover: trimtab fabric"),
    ("clsact", "tc qdisc add dev lo clsact", "the fabric's data planes bpf and flower (kernel is left)"),
)
"""What, the command that tries it, and what goes without."""

_PATIENCE = 5.0  # s
_MODULES = "a kernel with it: apt-get install linux-image-amd64, or modprobe"


def look(settings: Settings) -> Iterator[Finding]:
    """Nothing of this machine's own network is touched."""
    absent = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if absent:
        mend = "apt-get install iproute2"
        yield missing("kernel features", f"no {' and no '.join(absent)} to try them", "trimtab fabric", mend)
        return
    try:
        with NetworkNamespace() as namespace:
            for what, command, disables in TRIALS:
                yield _tried(namespace, what, command, disables)
    except NoNamespaceError as error:
        yield missing("network namespaces", str(error), "trimtab fabric, its lab", "run as root")
        return
    yield from _planes()


def _tried(namespace: NetworkNamespace, what: str, command: str, disables: str) -> Finding:
    done = subprocess.run(
        command.split(), capture_output=True, text=True, timeout=_PATIENCE, preexec_fn=namespace.enter
    )
    if done.returncode == 0:
        return ok(what, "works")
    return missing(what, one_line(done.stderr)[:100] or f"status {done.returncode}", disables, _MODULES)


def _planes() -> Iterator[Finding]:
    from trimtab.fabric import bpf_unavailable, flower_unavailable

    for name, reason, disables in (
        ("bpf", bpf_unavailable(), "flows spread over both uplinks (kernel takes its place)"),
        ("flower", flower_unavailable(), "rules that a network card forwards by itself"),
    ):
        if reason is None:
            yield ok(f"plane {name}", "works")
        else:
            yield missing(f"plane {name}", one_line(reason)[:140], disables, _MODULES)
