"""An agent's containers as Prometheus reads them: a page of text behind a small server of its own."""

import contextlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

from trimtab.core import StorageError, split_address
from trimtab.resize.http_server import HttpServer, running
from trimtab.resize.status import Row, Status

_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Name, kind, what it says, and how it is read off a row.
_PER_CONTAINER: tuple[tuple[str, str, str, Callable[[Row], float]], ...] = (
    ("cpu_limit_cores", "gauge", "CPUs the container may use", lambda row: row.cpus),
    ("cpu_used_cores", "gauge", "CPUs it used in the last period", lambda row: row.used_cpus),
    ("memory_limit_bytes", "gauge", "memory it may use", lambda row: row.memory),
    ("memory_used_bytes", "gauge", "memory it used when last looked at", lambda row: row.used_memory),
    ("throttled_periods_total", "counter", "periods its CPU limit held it back", lambda row: row.throttles),
    ("memory_grants_total", "counter", "times it ran out of memory and got more", lambda row: row.traps),
    ("memory_refusals_total", "counter", "times there was nothing to give", lambda row: row.refusals),
)


def exposition(status: Status) -> str:
    """All figures in Prometheus' text format."""
    lines = []
    for name, kind, says, read in _PER_CONTAINER:
        lines += [f"# HELP trimtab_container_{name} {says}", f"# TYPE trimtab_container_{name} {kind}"]
        for row in status.rows:
            labels = f'container="{_escaped(row.path)}",pool="{_escaped(row.pool)}"'
            lines.append(f"trimtab_container_{name}{{{labels}}} {read(row):g}")
    for name, says, at in (("cpu_cap_cores", "CPUs", 0), ("memory_cap_bytes", "memory", 1)):
        lines += [f"# HELP trimtab_pool_{name} {says} that all of a pool may use together"]
        lines += [f"# TYPE trimtab_pool_{name} gauge"]
        lines += [
            f'trimtab_pool_{name}{{pool="{_escaped(pool)}"}} {caps[at]:g}'
            for pool, caps in status.caps.items()
        ]
    lines += [
        "# HELP trimtab_agent_late_periods_total periods that began too late",
        "# TYPE trimtab_agent_late_periods_total counter",
        f"trimtab_agent_late_periods_total {status.late}",
    ]
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def metrics_server(address: str, look: Callable[[], Status]) -> Iterator[int]:
    """Serve `/metrics` at "HOST:PORT" while the context lasts; the port, where 0 stands for any."""
    host, port = split_address(f"127.0.0.1{address}" if address.startswith(":") else address)

    class Handler(BaseHTTPRequestHandler):
        """`/metrics`, and nothing else."""

        def do_GET(self) -> None:
            """Answer one request."""
            if self.path != "/metrics":
                self.send_error(404)
                return
            body = exposition(look()).encode()
            self.send_response(200)
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    try:
        server = HttpServer(host, port, Handler)
    except OSError as error:
        raise StorageError(f"metrics cannot be served at {address}: {error.strerror}") from None
    with running(server, "metrics") as found:
        yield found


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
