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
    with pytest.raises(BadInputError, match='/shop/x belongs to the pools "a" and "b"'):
        owner(Container("/shop/x"), pools)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no pools"),
        ("pools: []", "has no pools"),
        ("pools: [1]", "pool 1 is not a set of names and values"),
        ("pools: [{cpu: 1, memory: 1GiB, select: [{cgroup: x}]}]", "needs a name"),
        ("pools: [{name: a, cpu: 1, select: [{cgroup: x}]}]", "needs a cap for memory"),
        ("pools: [{name: a, cpu: -1, memory: 1GiB, select: [{cgroup: x}]}]", "cpu: -1 is not an amount"),
        ("pools: [{name: a, cpu: .inf, memory: 1GiB, select: [{cgroup: x}]}]", "is not an amount above zero"),
        ("pools: [{name: a, cpu: 1, memory: 1 furlong, select: [{cgroup: x}]}]", "memory: "),
        ("pools: [{name: a, cpu: 1, memory: 1GiB}]", "needs select"),
        ("pools: [{name: a, cpu: 1, memory: 1GiB, select: [{image: x}]}]", 'there is no "image" here'),
        ("pools: [{name: a, cpus: 1}]", 'there is no "cpus" here'),
        ("pools: [{name: a, cpu: 1, memory: 1GiB, withheld: 1, select: [{cgroup: x}]}]", "from 0 up to 1"),
        ("pools: [{name: a, cpu: 1, memory: 1GiB, cpu_floor: 2, select: [{cgroup: x}]}]", "above the cap"),
        (SHOP + SHOP.replace("pools:\n", ""), 'two pools are called "shop"'),
        ("pools: [", "cannot be read as YAML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        _read(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="there is no file"):
        read_pools(tmp_path / "none.yaml")
