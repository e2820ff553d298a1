"""Planes taken away without knowing whose they were."""

import pytest
from lone_host import LoneHost

from trimtab.fabric.reconcile.bpf_plane import BpfPlane, bpf_unavailable
from trimtab.fabric.reconcile.reconciler import remove_planes

REASON = bpf_unavailable()


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_every_plane_of_the_namespace_goes_and_nothing_else(host: LoneHost) -> None:
    host.run("tc qdisc add dev w0 clsact")
    before = host.run("tc qdisc show"), host.devices()
    plane = BpfPlane(host.host, host.tenant)
    host.call(plane.prepare)
    plane.close()
    assert host.call(remove_planes) == 4  # on the port, on two uplinks, on the sender
    assert (host.run("tc qdisc show"), host.devices()) == before
    assert host.call(remove_planes) == 0
