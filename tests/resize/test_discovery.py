"""Which containers are there: groups by pattern once somebody is in them, and what runc wrote down."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trimtab.kernel import Hierarchy
from trimtab.resize import Container, Discovery, Pool, Selector, containers

Put = Callable[..., Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Makes a group with a process in it, this one if none is named."""

    def make(path: str, pid: int | str = os.getpid()) -> Path:
        folder = tmp_path / "cpu" / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.procs").write_text(f"{pid}\n")
        return folder

    return make


@pytest.fixture
def hierarchy(tmp_path: Path, put: Put) -> Hierarchy:
    for path in ("shop/cart", "shop/pay/inner", "kubepods/burstable/pod1/abc", "other"):
        put(path)
    return Hierarchy(1, {"cpu": tmp_path / "cpu"})


def _pool(*patterns: str) -> Pool:
    return Pool("any", 1.0, 1e9, tuple(Selector(pattern) for pattern in patterns))


def _found(hierarchy: Hierarchy, *patterns: str) -> list[str]:
    return sorted(container.cgroup for container in containers(hierarchy, [_pool(*patterns)], ()))


def test_groups_are_found_by_pattern_and_only_where_it_leads(hierarchy: Hierarchy, put: Put) -> None:
    assert _found(hierarchy, "/shop/c*") == ["/shop/cart"]
    assert _found(hierarchy, "/shop/*") == ["/shop/cart", "/shop/pay/inner"]  # nobody runs in pay itself
    put("shop/pay")
    assert _found(hierarchy, "/shop/*") == ["/shop/cart", "/shop/pay", "/shop/pay/inner"]
    assert _found(hierarchy, "/kubepods/*/pod*/*") == ["/kubepods/burstable/pod1/abc"]
    assert _found(hierarchy, "/*/abc", "/shop/cart") == ["/kubepods/burstable/pod1/abc", "/shop/cart"]
    assert _found(hierarchy, "/other", "/shop/cart") == ["/other", "/shop/cart"]
    assert _found(hierarchy, "/nowhere/*", "/nowhere") == []


def _state(folder: Path, name: str, group: str, **labels: str) -> None:
    """As runc does it: a folder first, then the state under another name, then renamed."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    paths = {controller: f"/sys/fs/cgroup/{controller}{group}" for controller in ("cpu", "memory")}
    state = {"cgroup_paths": paths, "config": {"labels": [f"{n}={v}" for n, v in labels.items()]}}
    (folder / name / "new").write_text(json.dumps(state))
    (folder / name / "new").rename(folder / name / "state.json")


def test_runtimes_say_what_a_container_is_called(hierarchy: Hierarchy, tmp_path: Path) -> None:
    labels = {"app": "shop", "io.kubernetes.pod.namespace": "web"}
    _state(tmp_path / "runc", "good", "/shop/cart", **labels)
    _state(tmp_path / "runc", "else", "/other", app="shop")
    for name, text in {"half": '{"cgroup_paths": {"cpu"', "odd": "[]"}.items():
        (tmp_path / "runc" / name).mkdir(parents=True)
        (tmp_path / "runc" / name / "state.json").write_text(text)
    pool = Pool("shop", 1.0, 1e9, (Selector(labels={"app": "shop"}, namespace="web"),))
    assert containers(hierarchy, [pool], [tmp_path / "runc"]) == [Container("/shop/cart", labels, "web")]


def test_containerd_has_its_own_name_for_the_namespace(hierarchy: Hierarchy, tmp_path: Path) -> None:
    _state(tmp_path / "runc", "one", "/other", **{"io.kubernetes.cri.sandbox-namespace": "web"})
    pool = Pool("shop", 1.0, 1e9, (Selector(namespace="web"),))
    assert [each.cgroup for each in containers(hierarchy, [pool], [tmp_path / "runc"])] == ["/other"]


def test_in_version_2_the_one_path_counts(tmp_path: Path, hierarchy: Hierarchy) -> None:
    (tmp_path / "runc" / "one").mkdir(parents=True)
    state = {"cgroup_paths": {"": "/sys/fs/cgroup/shop/cart"}, "config": {"labels": ["app=shop"]}}
    (tmp_path / "runc" / "one" / "state.json").write_text(json.dumps(state))
    pool = Pool("shop", 1.0, 1e9, (Selector(labels={"app": "shop"}),))
    found = containers(Hierarchy(2, {"": hierarchy.folders["cpu"]}), [pool], [tmp_path / "runc"])
    assert [container.cgroup for container in found] == ["/shop/cart"]


class Time:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


Look = Callable[[], list[str]]


@pytest.fixture
def look(hierarchy: Hierarchy, tmp_path: Path, time: Time) -> Iterator[Look]:
    """Asks for the containers of /shop, and those that runc says are the shop's; again and again."""
    pool = Pool("shop", 1.0, 1e9, (Selector("/shop/*"), Selector(labels={"app": "shop"})))
    with Discovery(hierarchy, [pool], [tmp_path / "runc"], now=time) as discovery:
        yield lambda: sorted(container.cgroup for container in discovery())


def test_who_comes_is_found_at_the_next_look_and_who_goes_is_not(look: Look, put: Put) -> None:
    assert look() == ["/shop/cart", "/shop/pay/inner"]
    folder = put("shop/new")
    assert "/shop/new" in look()
    (folder / "cgroup.procs").unlink()
    folder.rmdir()
    assert look() == ["/shop/cart", "/shop/pay/inner"]


def test_states_are_read_when_they_are_written_and_only_then(
    look: Look, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look()
    (tmp_path / "runc" / "one").mkdir(parents=True)
    assert "/other" not in look()
    _state(tmp_path / "runc", "one", "/other", app="shop")
    assert "/other" in look()
    parsed = list[str]()
    monkeypatch.setattr(json, "loads", lambda text: parsed.append(text))
    assert "/other" in look()
    assert parsed == []
    monkeypatch.undo()
    put("another")
    _state(tmp_path / "runc", "two", "/another", app="shop")
    assert "/another" in look()
    for name in ("one", "two"):
        (tmp_path / "runc" / name / "state.json").unlink()
        (tmp_path / "runc" / name).rmdir()
    assert look() == ["/shop/cart", "/shop/pay/inner"]


def test_a_state_rewritten_in_place_is_noticed_by_the_look_at_everything(
    look: Look, tmp_path: Path, time: Time
) -> None:
    _state(tmp_path / "runc", "one", "/other", app="else")
    assert "/other" not in look()
    _state(tmp_path / "runc", "one", "/other", app="shop")
    time.now = 6.0
    assert "/other" in look()


def test_a_group_counts_once_somebody_is_in_it(look: Look, put: Put, time: Time) -> None:
    look()
    folder = put("shop/new", pid="")
    assert "/shop/new" not in look()
    time.now = 1.0
    put("shop/new")
    assert "/shop/new" in look()
    (folder / "cgroup.procs").write_text("")  # it was there, and has ended
    assert "/shop/new" in look()


def test_an_empty_group_is_not_given_up(look: Look, put: Put, time: Time) -> None:
    put("shop/slow", pid="")
    look()
    time.now = 3.0
    look()
    put("shop/slow")
    time.now = 4.5
    assert "/shop/slow" in look()


NAMED = """
import ctypes, sys, time
ctypes.CDLL(None).prctl(15, sys.argv[1].encode())
print(flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("name", ["runc:[2:INIT]", "pause"])
def test_runc_at_work_and_a_pods_pause_are_no_containers(look: Look, put: Put, name: str) -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", NAMED, name], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        put("shop/new", child.pid)
        assert "/shop/new" not in look()
        put("shop/new", f"{child.pid}\n{os.getpid()}")
        assert "/shop/new" in look()
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def test_processes_hidden_by_their_namespace_count(look: Look, put: Put) -> None:
    put("shop/hidden", pid=0)
    assert "/shop/hidden" in look()
