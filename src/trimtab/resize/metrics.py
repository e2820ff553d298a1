"""Prometheus metrics of an agent's or a controller's containers, served at `/metrics`."""

import contextlib
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trimtab.core import StorageError, split_address
from trimtab.resize.http_server import BackgroundHttpServer, running
from trimtab.resize.status import PoolStatus

# Kind, name after "trimtab_container_" (a counter's gets "_total"), description, and the row's field.
_PER_CONTAINER = (
    (GaugeMetricFamily, "cpu_limit_cores", "CPUs the container may use", "cpus"),
    (GaugeMetricFamily, "cpu_used_cores", "CPUs it used in the last period", "used_cpus"),
    (GaugeMetricFamily, "memory_limit_bytes", "memory it may use", "memory"),
    (GaugeMetricFamily, "memory_used_bytes", "memory it used at the last look", "used_memory"),
    (CounterMetricFamily, "throttled_periods", "periods its CPU limit held it back", "throttles"),
    (CounterMetricFamily, "memory_grants", "times it ran out of memory and got more", "traps"),
    (CounterMetricFamily, "memory_refusals", "times the pool had no memory to give", "refusals"),
)


class StatusCollector(Collector):
    """Turns the status that `look` returns into metrics whenever Prometheus scrapes."""

    def __init__(self, look: Callable[[], PoolStatus]) -> None:
        self._look = look

    def collect(self) -> Iterator[Metric]:
        status = self._look()
        for kind, name, description, field in _PER_CONTAINER:
            family = kind(f"trimtab_container_{name}", description, labels=("container", "pool"))
            for row in status.rows:
                family.add_metric((row.path, row.pool), getattr(row, field))
            yield family
        unmanaged = GaugeMetricFamily(
            "trimtab_container_unmanaged",
            "1 for a group that cannot be managed",
            labels=("container", "reason"),
        )
        for path, reason in status.unmanaged.items():
            unmanaged.add_metric((path, reason), 1.0)
        yield unmanaged
        for name, amount, at in (("cpu_cap_cores", "CPUs", 0), ("memory_cap_bytes", "memory", 1)):
            caps = GaugeMetricFamily(
                f"trimtab_pool_{name}", f"{amount} that all of a pool may use together", labels=("pool",)
            )
            for pool, cap in status.caps.items():
                caps.add_metric((pool,), cap[at])
            yield caps
        yield CounterMetricFamily("trimtab_agent_late_periods", "periods that began too late", status.late)


@contextlib.contextmanager
def metrics_server(address: str, look: Callable[[], PoolStatus]) -> Iterator[int]:
    """Serve `/metrics` at "HOST:PORT" while the context lasts; yields the port, where 0 is any."""
    host, port = split_address(f"127.0.0.1{address}" if address.startswith(":") else address)
    metrics = CollectorRegistry()
    metrics.register(StatusCollector(look))

    class MetricsOnly(MetricsHandler):
        registry = metrics

        def do_GET(self) -> None:
            if self.path.partition("?")[0] == "/metrics":
                super().do_GET()
            else:
                self.send_error(404)

    try:
        server = BackgroundHttpServer(host, port, MetricsOnly)
    except OSError as error:
        raise StorageError(f"metrics cannot be served at {address}: {error.strerror}") from None
    with running(server, "metrics") as bound:
        yield bound
