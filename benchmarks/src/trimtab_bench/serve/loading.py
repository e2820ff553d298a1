"""A load on a server: what the generator saw, and what it took of the machine."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from trimtab_bench.serve.generator import Load
from trimtab_bench.serve.latency import Measured
from trimtab_bench.serve.operations import READS, WRITES
from trimtab_bench.serve.processes import Server, child


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came of a load; `server_cpus` is CPU time of the server per second."""

    seen: Measured
    server_cpus: float

    def figures(self) -> dict[str, Any]:
        """Rates, latencies in milliseconds, failures and CPUs; reads and writes apart."""
        told: dict[str, Any] = {}
        for name, names in (("reads", (*READS, "constant")), ("writes", tuple(WRITES))):
            if any(each in self.seen.latencies for each in names):
                told[name] = {"per_s": self.seen.per_second(names), **asdict(self.seen.of(names))}
        return told | {
            "errors": self.seen.failed,
            "server_cpus": self.server_cpus,
            "generator_cpus": self.seen.cpus,
            "generator_late_ms": self.seen.late * 1e3,
        }

    def by_operation(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Latencies in milliseconds of each operation that was asked."""
        return {name: asdict(self.seen.of([name])) for name in names if name in self.seen.latencies}


def loaded(server: Server, load: Load) -> Loaded:
    """Put a load on a server."""
    with child("generator") as generator:
        generator.tell(asdict(load))
        generator.heard()
        before = server.cpu_seconds()
        generator.heard()
        cpus = (server.cpu_seconds() - before) / load.seconds
        told = generator.heard()
    return Loaded(Measured(**told), cpus)
