"""Pools from a file, and whom they own."""

from pathlib import Path

import pytest

from trimtab.core import BadInputError
from trimtab.resize import Container, Pool, Selector, owner, read_pools

SHOP = """
pools:
  - name: shop
    cpu: 2.5
    memory: 4GiB
    withheld: 0.25
    select:
      - cgroup: /shop/*
      - {label: app=shop, namespace: web}
  - name: batch
    cpu: 1
    memory: 512MiB
    select: [{cgroup: "/batch/*"}]
"""


def _read(folder: Path, text: str) -> tuple[Pool, ...]:
    (folder / "pools.yaml").write_text(text, encoding="utf-8")
    return read_pools(folder / "pools.yaml")


def test_pools_are_read_with_their_caps_and_selectors(tmp_path: Path) -> None:
    shop, batch = _read(tmp_path, SHOP)
    assert (shop.cpu, shop.memory, batch.memory) == (2.5, 4 * 2**30, 512 * 2**20)
    assert shop.owns(Container("/shop/cart"))
    assert shop.owns(Container("/kubepods/pod1/x", {"app": "shop", "tier": "front"}, "web"))
    assert not shop.owns(Container("/kubepods/pod1/x", {"app": "shop"}, "other"))
    assert owner(Container("/batch/1"), (shop, batch)) is batch
    assert owner(Container("/system"), (shop, batch)) is None


def test_at_first_everyone_gets_the_same_and_some_memory_is_withheld(tmp_path: Path) -> None:
    shop, _ = _read(tmp_path, SHOP)
    assert shop.first_cpu(5) == pytest.approx(0.5)
    assert shop.first_memory(4) == pytest.approx(0.75 * 2**30)


def test_a_container_in_two_pools_is_refused_by_name() -> None:
    pools = [Pool(name, 1.0, 1e9, (Selector("/shop/*"),)) for name in ("a", "b")]
    with pytest.raises(BadInputError, match=r'/shop/x .*"a" and "b"'):
        owner(Container("/shop/x"), pools)


GOOD = "name: a, cpu: 1, memory: 1GiB, select: [{cgroup: x}]"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "pools"),
        ("pools: []", "pools"),
        ("pools: [1]", r"pools\[0\] is 1;"),
        ("pools: [{cpu: 1, memory: 1GiB, select: [{cgroup: x}]}]", r"pools\[0\]\.name is missing"),
        ("pools: [{name: a, cpu: 1, select: [{cgroup: x}]}]", r"pools\[0\]\.memory is missing"),
        (f"pools: [{{{GOOD.replace('cpu: 1', 'cpu: -1')}}}]", r"pools\[0\]\.cpu is -1"),
        (f"pools: [{{{GOOD.replace('cpu: 1', 'cpu: .inf')}}}]", r"pools\[0\]\.cpu is inf"),
        (f"pools: [{{{GOOD.replace('1GiB', '1 furlong')}}}]", r"pools\[0\]\.memory is '1 furlong'"),
        (f"pools: [{{{GOOD.replace('1GiB', '0')}}}]", r"pools\[0\]\.memory is 0"),
        ("pools: [{name: a, cpu: 1, memory: 1GiB}]", r"pools\[0\]\.select is missing"),
        (f"pools: [{{{GOOD.replace('cgroup: x', '')}}}]", r"pools\[0\]\.select\[0\]"),
        (f"pools: [{{{GOOD.replace('cgroup', 'image')}}}]", r'"image" in pools\[0\]\.select\[0\]'),
        ("pools: [{name: a, cpus: 1}]", r'"cpus" in pools\[0\] \(did you mean cpu\?\)'),
        (f"pools: [{{{GOOD}, withheld: 1}}]", r"pools\[0\]\.withheld is 1"),
        (f"pools: [{{{GOOD}, cpu_floor: 2}}]", "cpu_floor is above cpu"),
        (SHOP + SHOP.replace("pools:\n", ""), '"shop"'),
        ("pools: [", "cannot be read as YAML"),
    ],
)
def test_a_bad_file_is_refused_by_path_field_and_value(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(BadInputError, match=rf"pools\.yaml[^\n]*{problem}[^\n]*$"):
        _read(tmp_path, text)


def test_numbers_are_labels_and_caps_without_units_are_bytes_and_cpus(tmp_path: Path) -> None:
    text = "pools: [{name: a, cpu: '0.5', memory: 1e9, select: [{label: {release: 7}, namespace: 1}]}]"
    (pool,) = _read(tmp_path, text)
    assert (pool.cpu, pool.memory) == (0.5, 1e9)
    assert pool.select == (Selector(labels={"release": "7"}, namespace="1"),)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"none\.yaml"):
        read_pools(tmp_path / "none.yaml")
