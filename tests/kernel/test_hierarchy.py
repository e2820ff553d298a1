"""Which cgroup files are ours, from what the kernel says about mounts and membership."""

from pathlib import Path

import pytest

from trimtab.kernel import find_hierarchy


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc").mkdir()
    return tmp_path / "proc"


def describe(proc: Path, mounts: list[tuple[Path, str, str]], membership: str) -> None:
    """Write mountinfo (mount point, its root, "type source options") and the process's groups."""
    lines = [
        f"{30 + i} 23 0:{i} {root} {point} rw,relatime - {kind}"
        for i, (point, root, kind) in enumerate(mounts)
    ]
    (proc / "mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda rw\n" + "\n".join(lines) + "\n")
    (proc / "cgroup").write_text(membership)


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def test_version_1_gives_a_folder_per_controller(proc: Path, tmp_path: Path) -> None:
    cpu = folder(tmp_path / "cpu,cpuacct")
    memory = folder(tmp_path / "memory" / "jobs" / "a").parents[1]
    describe(
        proc,
        [(cpu, "/", "cgroup cgroup rw,cpu,cpuacct"), (memory, "/", "cgroup cgroup rw,memory")],
        "3:cpu,cpuacct:/\n2:memory:/jobs/a\n",
    )
    found = find_hierarchy(proc)
    assert found is not None
    assert found.version == 1
    assert found.folders["cpuacct"] == cpu
    assert found.folders["memory"] == memory / "jobs" / "a"


def test_a_hybrid_system_counts_as_version_1(proc: Path, tmp_path: Path) -> None:
    names = {name: folder(tmp_path / name) for name in ("cpuacct", "memory", "unified")}
    describe(
        proc,
        [
            (names["unified"], "/", "cgroup2 cgroup2 rw"),
            (names["cpuacct"], "/", "cgroup cgroup rw,cpuacct"),
            (names["memory"], "/", "cgroup cgroup rw,memory"),
        ],
        "2:memory:/\n1:cpuacct:/\n0::/\n",
    )
    found = find_hierarchy(proc)
    assert found is not None
    assert found.version == 1


def test_version_2_gives_one_folder(proc: Path, tmp_path: Path) -> None:
    own = folder(tmp_path / "cgroup" / "user.slice" / "shell")
    describe(proc, [(tmp_path / "cgroup", "/", "cgroup2 cgroup2 rw")], "0::/user.slice/shell\n")
    found = find_hierarchy(proc)
    assert found is not None
    assert (found.version, found.folders) == (2, {"": own})


def test_inside_a_container_the_mounted_part_is_used(proc: Path, tmp_path: Path) -> None:
    mounted = folder(tmp_path / "cgroup")
    describe(proc, [(mounted, "/docker/abc", "cgroup2 cgroup2 rw")], "0::/\n")
    found = find_hierarchy(proc)
    assert found is not None
    assert found.folders == {"": mounted}


def test_without_any_mount_there_is_no_hierarchy(proc: Path) -> None:
    describe(proc, [], "")
    assert find_hierarchy(proc) is None
