"""Whether it can listen where it is told to."""

import errno
import socket
from collections.abc import Iterator

from trimtab.core import split_address
from trimtab.serve.doctor.finding import Finding, missing, ok, why
from trimtab.serve.settings import Settings, setting_of


def look(settings: Settings) -> Iterator[Finding]:
    """Each address by being bound for a moment, never listened at."""
    yield _address("listen", settings.listen, "the API and the dashboard")
    if settings.pools:
        yield _address("agents_listen", settings.agents_listen, "the controller of pools")
        host, port = split_address(settings.agents_listen)
        join = settings.agents_join or f"{f'[{host}]' if ':' in host else host}:{port + 1}"
        yield _address("agents_join", join, "nodes that join the controller")
    if settings.agents_metrics:
        yield _address("agents_metrics", settings.agents_metrics, "the pools' /metrics")


def _address(name: str, address: str, disables: str) -> Finding:
    what = f"{name} {address}"
    host, port = split_address(address)
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            trial.bind(place)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and (pid := _our_listener(port)):
            return ok(what, f"a Trimtab listens there already (process {pid})", needed=True)
        variable = setting_of(name).variable
        look_at = f"ss -ltnp 'sport = :{port}' shows who listens; "
        mend = f"{look_at if error.errno == errno.EADDRINUSE else ''}{variable}=HOST:PORT names another place"
        return missing(what, why(error), disables, mend, needed=True)
    return ok(what, "free", needed=True)


def _our_listener(port: int) -> int | None:
    """The process of a Trimtab that listens there, as far as this user may see."""
    import psutil

    try:
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr.port == port and each.pid:
                words = psutil.Process(each.pid).cmdline()
                if any(word.rpartition("/")[2] == "trimtab" for word in words[:2]):
                    return int(each.pid)
    except (psutil.Error, OSError):
        pass
    return None
