"""What zebra writes is what the view says, and word of it comes, or word that word was lost."""

import select

from lone_host import LoneHost

from trimtab.fabric.reconcile.planes import mac_bytes
from trimtab.fabric.reconcile.reconciler import Heard, TunnelView

HERE = mac_bytes("02:00:00:00:00:01")
THERE = bytes([10, 255, 0, 2])


def view_of(host: LoneHost, **options: object) -> TunnelView:
    return host.call(lambda: TunnelView(host.tenant.tunnel, **options))  # type: ignore[arg-type]


def waited(view: TunnelView) -> Heard:
    assert select.select([view], [], [], 10)[0], "no message came"
    return view.heard()


def test_macs_at_other_hosts_are_seen(host: LoneHost) -> None:
    host.learn({"02:00:00:00:00:01": "10.255.0.2", "02:00:00:00:00:02": "10.255.0.3"})
    view = view_of(host)
    assert host.call(view.entries) == {HERE: THERE, mac_bytes("02:00:00:00:00:02"): bytes([10, 255, 0, 3])}
    host.learn({"02:00:00:00:00:02": "10.255.0.2"})
    host.forget({"02:00:00:00:00:01": "10.255.0.2"})
    assert host.call(view.entries) == {mac_bytes("02:00:00:00:00:02"): THERE}
    view.close()


def test_what_a_table_of_hosts_cannot_say_is_left_to_the_tunnel(host: LoneHost) -> None:
    host.learn({"02:00:00:00:00:01": "10.255.0.2", "02:00:00:00:00:05": "10.255.0.2"})
    for entry in (
        "append 00:00:00:00:00:00 dev fvx100 dst 10.255.0.9 self",  # where floods go
        "append 01:00:5e:00:00:05 dev fvx100 dst 10.255.0.9 self",
        "add 02:00:00:00:00:03 dev fvx100 dst 10.255.0.9 port 4790 self",
        "add 02:00:00:00:00:04 dev fvx100 dst 10.255.0.9 vni 7 self",
    ):
        host.run(f"bridge fdb {entry}")
    local = (mac_bytes("02:00:00:00:00:05"),)
    view = view_of(host, local=local)
    assert host.call(view.entries) == {HERE: THERE}
    view.close()


def test_a_change_is_heard_and_others_are_not(host: LoneHost) -> None:
    view = view_of(host)
    host.run("ip neighbour add 10.100.0.77 lladdr 02:00:00:00:00:77 dev w0")
    assert not waited(view)
    host.learn({"02:00:00:00:00:01": "10.255.0.2"})
    assert waited(view).entries
    view.close()


def test_a_tunnel_that_goes_and_comes_back_is_noticed(host: LoneHost) -> None:
    host.learn({"02:00:00:00:00:01": "10.255.0.2"})
    view = view_of(host)
    host.run("ip link del fvx100")
    assert waited(view).devices
    assert host.call(view.entries) == {}
    host.run("ip link add fvx100 type vxlan id 100 local 10.255.0.1 dstport 4789 nolearning")
    host.run("ip link set fvx100 master fbr100 up")
    assert waited(view).devices
    host.learn({"02:00:00:00:00:01": "10.255.0.2"})
    assert host.call(view.entries) == {HERE: THERE}
    view.close()


def test_messages_the_kernel_dropped_are_known_to_be_lost(host: LoneHost) -> None:
    view = view_of(host, receive_buffer=1)
    host.learn({f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}": "10.255.0.2" for number in range(500)})
    assert waited(view).lost
    assert len(host.call(view.entries)) == 500
    view.close()
