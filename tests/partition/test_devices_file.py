"""Devices from a file: everything may be unequal, and errors name the place."""

from pathlib import Path

import pytest

from trimtab.core import TrimtabError
from trimtab.partition import devices_of, parse_devices
from trimtab.partition.devices import islands

FLEET = """
network: 25Gbit
latency: 20us
machines:
  - name: big
    bandwidth: 64GB/s
    devices:
      - {kind: a100-40, count: 2}
      - {kind: t4, memory: 12GB, price: $0.10/h}
  - name: small
    count: 2
    devices:
      - {kind: homemade, memory: 8GB, memory_bandwidth: 200GB/s, peak: {fp32: 5 TFLOP/s, fp16: 20 TFLOP/s}}
links:
  - {from: big, to: small.1, bandwidth: 100Gbit, latency: 5us}
  - {from: A100:0, to: homemade:1, bandwidth: 1Gbit}
  - {from: homemade:1, to: A100:0, bandwidth: 2Gbit}
  - {from: T4:0, to: homemade:1, bandwidth: none}
"""


def write(folder: Path, text: str) -> str:
    path = folder / "fleet.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_everything_may_be_unequal(tmp_path: Path) -> None:
    devices = devices_of(write(tmp_path, FLEET))
    assert [d.name for d in devices.devices] == ["A100:0", "A100:1", "T4:0", "homemade:0", "homemade:1"]
    assert [d.machine for d in devices.devices] == [0, 0, 0, 1, 2]
    assert devices[2].memory == 12e9
    assert devices[2].price == pytest.approx(0.10 / 3600)
    assert devices[3].peak == {"fp32": 5e12, "fp16": 20e12}
    assert devices[3].price is None
    assert devices.bandwidth[0, 2] == 64e9
    assert devices.bandwidth[2, 3] == devices.bandwidth[3, 2] == 100e9 / 8
    assert devices.latency[2, 3] == pytest.approx(5e-6)
    assert devices.bandwidth[3, 4] == 25e9 / 8
    assert (devices.bandwidth[0, 4], devices.bandwidth[4, 0]) == (1e9 / 8, 2e9 / 8)
    assert devices.latency[0, 4] == pytest.approx(20e-6)
    assert devices.bandwidth[2, 4] == 0


def test_a_network_on_the_command_line_counts_more(tmp_path: Path) -> None:
    text = "machines: [{devices: [{kind: t4}]}, {devices: [{kind: l4}]}]"
    assert "since" in parse_devices(write(tmp_path, text)).assumed[0]
    parsed = parse_devices(write(tmp_path, "network: 1Gbit\n" + text), "40Gbit")
    assert parsed.devices.bandwidth[0, 1] == 40e9 / 8
    assert parsed.assumed == ()


def test_islands_are_devices_that_reach_one_another(tmp_path: Path) -> None:
    text = "network: none\nmachines: [{name: a, devices: [{kind: t4, count: 2}]}, {devices: [{kind: l4}]}]"
    assert islands(devices_of(write(tmp_path, text))) == ((0, 1), (2,))
    joined = f"{text}\nlinks: [{{from: L4:0, to: T4:1, bandwidth: 1Gbit}}]"
    assert islands(devices_of(write(tmp_path, joined))) == ((0, 1, 2),)


T4 = "machines: [{devices: [{kind: t4, count: 2}]}]\n"


@pytest.mark.parametrize(
    ("text", "place", "value"),
    [
        ("", "fleet.yaml", "None"),
        ("machines: []", "machines", "[]"),
        ("machines: [{devices: []}]", "machines[0].devices", "[]"),
        ("machines: [{devices: [{kind: t4, count: 0}]}]", "machines[0].devices[0].count", "0"),
        ("machines: [{devices: [{kind: t4, count: 2.5}]}]", "devices[0].count", "2.5"),
        ("machines: [{devices: [{kind: t4, memory: -4GB}]}]", "devices[0].memory", "-4GB"),
        ("machines: [{devices: [{kind: t4, memory: .nan}]}]", "devices[0].memory", "nan"),
        ("machines: [{devices: [{kind: t4, memory: true}]}]", "devices[0].memory", "True"),
        ("machines: [{devices: [{kind: t4, price: -1}]}]", "devices[0].price", "-1"),
        ("machines: [{devices: [{kind: t4, memmory: 4GB}]}]", '"memmory"', "did you mean memory"),
        ("machines: [{devices: [{kind: t44}]}]", "t44 (did you mean T4", "memory and peak"),
        ("machines: [{devices: [{count: 2}]}]", "devices[0].kind", "missing"),
        ("machines: [{devices: [{kind: t4, peak: {fp12: 1}}]}]", "devices[0].peak", '"fp12"'),
        ("machines: [{devices: [{kind: t4, peak: {}}]}]", "devices[0]", "peak is empty"),
        ("machines: [{devices: [{kind: t4, cores: 4}]}]", "devices[0]", "cores is for kind: cpu"),
        ("machines: [{devices: [{kind: t4, name: a}, {kind: t4, name: a}]}]", "two devices", "called a"),
        ("machines: [{devices: [{kind: t4, name: a, count: 2}]}]", "devices[0]", "the name a"),
        ("machines: [{count: 2, devices: [{kind: t4, name: a}]}]", "machines[0]", "2 machines"),
        ("machines: [{count: 4096, devices: [{kind: t4, count: 2}]}]", "machines[0]", "more than 4,096"),
        ("machines: [{latency: 5us, devices: [{kind: t4}]}]", "machines[0]", "needs a bandwidth"),
        ("network: quick\nmachines: [{devices: [{kind: t4}]}]", "network", "quick"),
        (f"{T4}links: [{{from: T4:0, to: T4:7, bandwidth: 1Gbit}}]", "links[0].to", "T4:7"),
        (f"{T4}links: [{{from: T4:0, to: T4:0, bandwidth: 1Gbit}}]", "links[0]", "itself"),
        (f"{T4}links: [{{from: T4:0, to: T4:1}}]", "links[0].bandwidth", "missing"),
        ("machines: [", "YAML", "machines"),
    ],
)
def test_a_mistake_is_refused_with_its_path_field_and_value(
    tmp_path: Path, text: str, place: str, value: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(TrimtabError) as refused:
        devices_of(path)
    assert all(part in str(refused.value) for part in (path, place, value))
    assert "\n" not in str(refused.value)


def test_the_example_of_the_docs_is_read(tmp_path: Path) -> None:
    docs = Path(__file__).resolve().parents[2] / "docs" / "reference" / "partition.md"
    example = docs.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    devices = devices_of(write(tmp_path, example))
    assert [d.kind for d in devices.devices] == ["A100", "A100", "T4", *["homemade"] * 8]
    assert (devices.bandwidth[2, 7:] == 0).all()
