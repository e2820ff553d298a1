"""Which containers are there: groups by pattern, and what runc wrote down about its own."""

import json
from pathlib import Path

import pytest

from trimtab.kernel import Hierarchy
from trimtab.resize import Container, Pool, Selector, containers


@pytest.fixture
def hierarchy(tmp_path: Path) -> Hierarchy:
    for path in ("shop/cart", "shop/pay/inner", "kubepods/burstable/pod1/abc", "other"):
        (tmp_path / "cpu" / path).mkdir(parents=True)
    return Hierarchy(1, {"cpu": tmp_path / "cpu"})


def _found(hierarchy: Hierarchy, *patterns: str, states: tuple[Path, ...] = ()) -> list[str]:
    pool = Pool("any", 1.0, 1e9, tuple(Selector(pattern) for pattern in patterns))
    return sorted(container.cgroup for container in containers(hierarchy, [pool], states))


def test_groups_are_found_by_pattern_and_only_where_it_leads(hierarchy: Hierarchy) -> None:
    assert _found(hierarchy, "/shop/c*") == ["/shop/cart"]
    assert _found(hierarchy, "/shop/*") == ["/shop/cart", "/shop/pay", "/shop/pay/inner"]
    assert _found(hierarchy, "/kubepods/*/pod*/*") == ["/kubepods/burstable/pod1/abc"]
    assert _found(hierarchy, "/other", "/shop/cart") == ["/other", "/shop/cart"]
    assert _found(hierarchy, "/nowhere/*", "/nowhere") == []


def test_runtimes_say_what_a_container_is_called(hierarchy: Hierarchy, tmp_path: Path) -> None:
    told = {
        "cgroup_paths": {"cpu": "/sys/fs/cgroup/cpu/shop/cart", "memory": "/sys/fs/cgroup/memory/shop/cart"},
        "config": {"labels": ["app=shop", "io.kubernetes.pod.namespace=web"]},
    }
    for name, text in {"good": json.dumps(told), "half": json.dumps(told)[:30], "odd": "[]"}.items():
        (tmp_path / "runc" / name).mkdir(parents=True)
        (tmp_path / "runc" / name / "state.json").write_text(text)
    pool = Pool("shop", 1.0, 1e9, (Selector(labels={"app": "shop"}, namespace="web"),))
    found = containers(hierarchy, [pool], [tmp_path / "runc"])
    assert found == [Container("/shop/cart", {"app": "shop", "io.kubernetes.pod.namespace": "web"}, "web")]
    assert pool.owns(found[0])


def test_in_version_2_the_one_path_counts(tmp_path: Path) -> None:
    (tmp_path / "runc" / "one").mkdir(parents=True)
    told = {"cgroup_paths": {"": "/sys/fs/cgroup/shop/cart"}, "config": {}}
    (tmp_path / "runc" / "one" / "state.json").write_text(json.dumps(told))
    hierarchy = Hierarchy(2, {"": tmp_path})
    pool = Pool("shop", 1.0, 1e9, (Selector(labels={"app": "shop"}),))
    assert [c.cgroup for c in containers(hierarchy, [pool], [tmp_path / "runc"])] == ["/shop/cart"]
