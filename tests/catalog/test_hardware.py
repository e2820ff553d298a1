"""Accelerators as facts: sane numbers, names that resolve."""

import csv
import gzip
import os
from pathlib import Path

import pytest

from trimtab.catalog import FORMATS, Accelerator, accelerator, accelerators, find_accelerator
from trimtab.core import NotFoundError

DATA = Path(os.environ.get("TRIMTAB_DATA") or Path(__file__).parents[3] / "shared" / "data")

ALL = pytest.mark.parametrize("device", accelerators(), ids=lambda a: a.name)


def test_there_are_at_least_thirty() -> None:
    assert len(accelerators()) >= 30


@ALL
def test_facts_are_in_the_range_of_real_devices(device: Accelerator) -> None:
    """A unit that is off by a factor of a thousand is out of range; the next generation is not."""
    assert 2010 <= device.year <= 2040
    assert 4e9 <= device.memory <= 4e12
    assert 50e9 <= device.memory_bandwidth <= 100e12
    assert 8e9 <= device.interconnect.bandwidth <= 10e12
    assert device.power is None or 50 <= device.power <= 5000
    assert set(device.peak) <= set(FORMATS)
    assert all(1e12 <= rate <= 2e17 for rate in device.peak.values())


@ALL
def test_a_narrower_format_is_never_slower(device: Accelerator) -> None:
    for wide, narrow in [
        ("fp64", "fp32"),
        ("fp32", "tf32"),
        ("tf32", "bf16"),
        ("fp32", "bf16"),
        ("bf16", "fp8"),
    ]:
        if wide in device.peak and narrow in device.peak:
            assert device.peak[narrow] >= device.peak[wide]
    if "bf16" in device.peak and "fp16" in device.peak:
        assert device.peak["bf16"] == device.peak["fp16"]


@ALL
def test_peaks_are_dense_so_half_the_width_is_about_twice_the_rate(device: Accelerator) -> None:
    if "bf16" in device.peak and "fp8" in device.peak:
        assert device.peak["fp8"] / device.peak["bf16"] == pytest.approx(2.0, rel=0.06) or device.vendor in (
            "AWS",
            "Intel",
        )


@pytest.mark.parametrize(
    ("name", "bf16", "memory", "bandwidth"),
    [
        ("A100", 312e12, 40e9, 1555e9),
        ("A100-80GB", 312e12, 80e9, 2039e9),
        ("H100", 989.4e12, 80e9, 3.35e12),
        ("H200", 989.4e12, 141e9, 4.8e12),
        ("L4", 121e12, 24e9, 300e9),
        ("A10G", 70e12, 24e9, 600e9),
        ("MI300X", 1307.4e12, 192e9, 5.3e12),
        ("TPU-v5e", 197e12, 16e9, 819e9),
    ],
)
def test_data_sheet_values(name: str, bf16: float, memory: float, bandwidth: float) -> None:
    device = accelerator(name)
    assert (device.peak["bf16"], device.memory, device.memory_bandwidth) == (bf16, memory, bandwidth)


def test_every_spelling_means_one_accelerator() -> None:
    spellings = [s.lower().replace(" ", "-") for a in accelerators() for s in {a.name.lower(), *a.aliases}]
    meanings = {(s, accelerator(s).name) for s in spellings}
    assert len(meanings) == len({s for s, _ in meanings})
    for a in accelerators():
        assert all(accelerator(s.upper()) is a and accelerator(s.lower()) is a for s in (a.name, *a.aliases))


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("A100-80GB", "A100-80GB"),
        ("H100-SXM", "H100"),
        ("h100-mega", "H100"),
        ("tpu-v5litepod", "TPU-v5e"),
        ("RTXA6000", "RTX-A6000"),
        ("V100-32GB", "V100-32GB"),
        ("RTX6000-Ada", "RTX-6000-Ada"),
        ("GAUDI2", "Gaudi2"),
        ("RTX PRO 6000", "RTX-PRO-6000"),
        ("rtx_pro_6000", "RTX-PRO-6000"),
        (" T4 ", "T4"),
    ],
)
def test_the_names_schedulers_and_clouds_use_resolve(alias: str, name: str) -> None:
    assert accelerator(alias).name == name


def test_most_published_accelerator_names_resolve() -> None:
    path = DATA / "prices" / "skypilot_accelerators.csv.gz"
    if not path.exists():
        pytest.skip(f"{path} is not here; set TRIMTAB_DATA to the folder with prices/")
    with gzip.open(path, "rt") as file:
        names = [row["AcceleratorName"] for row in csv.DictReader(file)]
    unknown = [name for name in names if find_accelerator(name) is None]
    assert len(unknown) < len(names) / 4, unknown


def test_an_unknown_name_gets_near_matches() -> None:
    with pytest.raises(NotFoundError, match=r'"H10".*H100'):
        accelerator("H10")
    with pytest.raises(NotFoundError, match="catalog ls --accelerators"):
        accelerator("abacus")
    assert find_accelerator("abacus") is None


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla V100-SXM2-32GB", "V100-32GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_a_name_as_the_driver_reports_it_is_understood(driver: str, name: str) -> None:
    assert accelerator(driver).name == name
