"""What the path of a kubelet's group says."""

import pytest

from trimtab.resize import KubeletGroup, kubelet_group

UID = "8dbc56b6-a1f5-4a0d-b2e1-0c3d9f6f2c11"
UNDERSCORES = UID.replace("-", "_")
ID = "4f3c" * 16


@pytest.mark.parametrize("quality", ["guaranteed", "burstable", "besteffort"])
@pytest.mark.parametrize("root", ["", "/kubelet"])
def test_the_cgroupfs_driver(quality: str, root: str) -> None:
    middle = "" if quality == "guaranteed" else f"/{quality}"
    pod = f"{root}/kubepods{middle}/pod{UID}"
    assert kubelet_group(f"{pod}/{ID}") == KubeletGroup(pod, UID, ID, quality)


@pytest.mark.parametrize("quality", ["guaranteed", "burstable", "besteffort"])
@pytest.mark.parametrize("runtime", ["cri-containerd", "crio", "docker"])
def test_the_systemd_driver(quality: str, runtime: str) -> None:
    middle, word = ("", "") if quality == "guaranteed" else (f"/kubepods-{quality}.slice", f"-{quality}")
    pod = f"/kubepods.slice{middle}/kubepods{word}-pod{UNDERSCORES}.slice"
    assert kubelet_group(f"{pod}/{runtime}-{ID}.scope") == KubeletGroup(pod, UID, ID, quality)


@pytest.mark.parametrize(
    "path",
    [
        "/kubepods",
        f"/kubepods/burstable/pod{UID}",
        f"/kubepods/burstable/pod{UID}/{ID}/inner",
        f"/kubepods.slice/kubepods-pod{UNDERSCORES}.slice",
        f"/kubepods.slice/kubepods-pod{UNDERSCORES}.slice/crio-conmon-{ID}.scope",
        f"/system.slice/docker-{ID}.scope",
        f"/mykubepods/pod{UID}/{ID}",
    ],
)
def test_other_groups_are_no_containers_of_pods(path: str) -> None:
    assert kubelet_group(path) is None
