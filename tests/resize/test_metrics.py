"""Metrics as Prometheus reads them; its own checker has the last word where it is installed."""

import shutil
import subprocess
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from trimtab.core import BadInputError, TrimtabError
from trimtab.resize import PoolStatus, metrics_server
from trimtab.resize.metrics import StatusCollector
from trimtab.resize.status import ContainerRow

STATUS = PoolStatus(
    0.0,
    3,
    {"shop": (2.0, 4e9)},
    (
        ContainerRow('/shop/a"b\\c', "shop", 0.5, 0.25, 1e8, 5e7, 7, 2, 1),
        ContainerRow("/shop/b", "shop", 1.5, 1.0, 2e8, 1e8, 0, 0, 0),
    ),
    unmanaged={"/shop/c": "belongs to two pools"},
)


def exposition() -> str:
    registry = CollectorRegistry()
    registry.register(StatusCollector(lambda: STATUS))
    return generate_latest(registry).decode()


def test_every_container_has_its_figures_with_escaped_names() -> None:
    text = exposition()
    assert r'trimtab_container_cpu_limit_cores{container="/shop/a\"b\\c",pool="shop"} 0.5' in text
    assert 'trimtab_container_memory_used_bytes{container="/shop/b",pool="shop"} 1e+08' in text
    assert 'trimtab_pool_cpu_cap_cores{pool="shop"} 2' in text
    assert "trimtab_agent_late_periods_total 3" in text
    assert 'trimtab_container_unmanaged{container="/shop/c",reason="belongs to two pools"} 1' in text


def test_prometheus_own_checker_accepts_it() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool, from the package prometheus")
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=exposition(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def test_the_page_is_served_and_nothing_else() -> None:
    with metrics_server("127.0.0.1:0", lambda: STATUS) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            assert page.read().decode() == exposition()
            assert page.headers["Content-Type"].startswith("text/plain; version=")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/")
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")


@pytest.mark.parametrize("address", ["9464", "localhost:", "localhost:http", "127.0.0.1:99999"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(BadInputError, match="address"), metrics_server(address, lambda: STATUS):
        pass


def test_a_port_that_is_taken_is_said_to_be() -> None:
    with (
        metrics_server("127.0.0.1:0", lambda: STATUS) as port,
        pytest.raises(TrimtabError, match="metrics"),
        metrics_server(f"127.0.0.1:{port}", lambda: STATUS),
    ):
        pass
