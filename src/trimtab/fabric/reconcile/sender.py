"""The tunnel that a host sends through when the data plane, not the tunnel, knows where each MAC is.

A VXLAN device that takes the destination from each frame's metadata (`external`) cannot listen on the port
on which a tenant's tunnel listens: the kernel gives a UDP port to one kind of tunnel, and the second stays
down. FRR 8.4 knows only tunnels with a number of their own, so they keep port 4789 and go on receiving
everything; the sender, one per host, listens on a port where nothing is expected, and what it sends is
addressed to 4789 all the same.
"""

import errno
import struct

from trimtab.fabric.reconcile.planes import PlaneError
from trimtab.kernel import rtnetlink

SENDER = "fvxout"
TUNNEL_PORT = 4789
SENDING_PORT = 14789
_NEW, _DELETE, _GET = 16, 17, 18
_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, mask of flags
_UP = 0x1
_NAME, _MTU, _INFO = 3, 4, 18
_KIND, _DATA = 1, 2
_LEARNING, _PORT, _EXTERNAL = 7, 15, 25


def put_sender(netlink: rtnetlink.Netlink, mtu: int) -> tuple[int, bool]:
    """See that the device is there, up, and as it should be: its index, and whether it was not."""
    index = rtnetlink.index_of(SENDER)
    if index is not None:
        is_up, has_mtu = _check(netlink, index)
        if is_up and has_mtu == mtu:
            return index, False
        body = _LINK.pack(0, 0, index, _UP, _UP) + rtnetlink.number(_MTU, mtu)
        netlink.request(f"set {SENDER} up", _NEW, 0, body)
        return index, True
    options = rtnetlink.attribute(_EXTERNAL, b"\1") + rtnetlink.attribute(_LEARNING, b"\0")
    options += rtnetlink.attribute(_PORT, struct.pack(">H", SENDING_PORT))
    info = rtnetlink.attribute(_INFO, rtnetlink.text(_KIND, "vxlan") + rtnetlink.attribute(_DATA, options))
    body = _LINK.pack(0, 0, 0, _UP, _UP) + rtnetlink.text(_NAME, SENDER) + rtnetlink.number(_MTU, mtu) + info
    try:
        netlink.request(
            f"make the tunnel {SENDER} on UDP port {SENDING_PORT}",
            _NEW,
            rtnetlink.CREATE | rtnetlink.EXCLUSIVE,
            body,
        )
    except rtnetlink.NetlinkError as error:
        if error.number != errno.EEXIST:  # made for another tenant at this moment
            raise
    index = rtnetlink.index_of(SENDER)
    if index is None:
        raise PlaneError(
            f"the tunnel {SENDER} went away as soon as it was made; who else removes devices here?"
        )
    return index, True


def remove_sender(netlink: rtnetlink.Netlink) -> None:
    """As if it had never been."""
    index = rtnetlink.index_of(SENDER)
    if index is not None:
        netlink.request(f"remove {SENDER}", _DELETE, 0, _LINK.pack(0, 0, index, 0, 0))


def _check(netlink: rtnetlink.Netlink, index: int) -> tuple[bool, int]:
    """Whether it is up, and its MTU; refuses what is not a sender."""
    answer = netlink.request(f"describe {SENDER}", _GET, 0, _LINK.pack(0, 0, index, 0, 0))[0]
    found = rtnetlink.attributes(answer, _LINK.size)
    info = rtnetlink.attributes(found.get(_INFO, b""))
    options = rtnetlink.attributes(info.get(_DATA, b""))
    is_ours = info.get(_KIND, b"").rstrip(b"\0") == b"vxlan" and options.get(_EXTERNAL, b"\0") == b"\1"
    if not is_ours or options.get(_PORT) != struct.pack(">H", SENDING_PORT):
        raise PlaneError(
            f"there is a device {SENDER} already that is not the sending tunnel of UDP port {SENDING_PORT}; "
            f"rename or remove it"
        )
    return bool(_LINK.unpack_from(answer)[3] & _UP), struct.unpack("=I", found[_MTU])[0]
