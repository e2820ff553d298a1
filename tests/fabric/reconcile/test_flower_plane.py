"""The flower plane against this kernel: where it lacks what is needed, that is said, and nothing stays."""

import pytest
from lone_host import LoneHost

from trimtab.fabric.reconcile import Changes, FlowerPlane, PlaneError, flower_unavailable, mac_bytes

MAC, FAR = mac_bytes("02:00:00:00:00:02"), bytes([10, 255, 0, 2])
REASON = flower_unavailable()


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_rules_are_made_read_back_changed_and_removed(host: LoneHost) -> None:
    plane = FlowerPlane(host.host, host.tenant)
    assert host.call(plane.prepare) > 0
    assert host.call(plane.prepare) == 0
    host.call(lambda: plane.apply(Changes({MAC: FAR})))
    assert host.call(plane.entries) == {MAC: FAR}
    host.call(lambda: plane.apply(Changes({MAC: bytes([10, 255, 0, 3])})))
    assert host.call(FlowerPlane(host.host, host.tenant).entries) == {MAC: bytes([10, 255, 0, 3])}
    host.call(lambda: plane.apply(Changes({}, (MAC,))))
    assert host.call(plane.entries) == {}
    host.call(plane.remove)
    assert "fvxout" not in host.devices()


@pytest.mark.skipif(REASON is None, reason="this kernel has flower")
def test_a_kernel_without_it_refuses_in_a_sentence(host: LoneHost) -> None:
    plane = FlowerPlane(host.host, host.tenant)
    host.call(plane.prepare)
    assert host.call(plane.prepare) == 0
    with pytest.raises(PlaneError, match="tc refused one of 2 changes"):
        host.call(lambda: plane.apply(Changes({MAC: FAR})))
    assert host.call(plane.entries) == {}
    host.call(plane.remove)
    assert "fvxout" not in host.devices()
    assert "mirred" not in host.run("tc actions list action mirred")
