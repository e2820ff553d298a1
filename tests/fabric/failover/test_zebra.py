"""What zebra says it has in the kernel."""

import socket
import threading
from pathlib import Path

import pytest

from trimtab.core import TrimtabError
from trimtab.fabric.failover.routes import Hop, daemon_hops, hops_of


def hop(number: int, **more: object) -> dict[str, object]:
    return {"ip": f"172.16.{number}.3", "interfaceName": f"p{number}", "active": True, "weight": 1, **more}


def test_only_installed_or_refused_routes_and_active_hops_count() -> None:
    told = {
        "10.255.0.2/32": [
            {"selected": True, "installed": True, "nexthops": [hop(2), hop(1), hop(3, active=False)]},
            {"nexthops": [hop(4)]},
        ],
        "10.255.0.3/32": [{"selected": True, "nexthops": [hop(1)]}],
        "10.255.0.5/32": [{"selected": True, "failed": True, "nexthops": [hop(1), hop(2)]}],
        "10.255.0.4/32": [{"selected": True, "installed": True, "nexthops": [{"unreachable": True}]}],
    }
    both = (Hop("p1", "172.16.1.3"), Hop("p2", "172.16.2.3"))
    assert hops_of(told) == {"10.255.0.2/32": both, "10.255.0.5/32": both}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"{nonsense\0\0\0\0", "cannot be read"),
        (b"% Unknown command\0\0\0\x02", "does not know"),
        (b"{", "does not answer"),
    ],
)
def test_a_zebra_that_says_something_else_is_a_sentence(tmp_path: Path, answer: bytes, says: str) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "zebra.vty"))
        listening.listen()

        def serve() -> None:
            with listening.accept()[0] as there:
                there.recv(100)
                there.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(TrimtabError, match=says):
            daemon_hops(tmp_path)
        thread.join()


def test_where_no_zebra_runs_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(TrimtabError, match="zebra's routes cannot be read"):
        daemon_hops(tmp_path)
