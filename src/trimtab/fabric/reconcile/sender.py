"""The tunnel that a host sends through when the data plane, not the tunnel, knows where each MAC is.

A VXLAN device that takes the destination from each frame's metadata (`external`) cannot listen on the port
on which a tenant's tunnel listens: the kernel gives a UDP port to one kind of tunnel, and the second stays
down. FRR 8.4 supports only tunnels with their own VNI, so they keep port 4789 and receive everything; the
sender, one per host, listens on a port where nothing arrives, and addresses its packets to 4789.
"""

import errno
import struct

from trimtab.fabric.reconcile.planes import PlaneError
from trimtab.kernel import rtnetlink

SENDER = "fvxout"
TUNNEL_PORT = 4789
SENDING_PORT = 14789
_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, mask of flags
_UP = 0x1
_NAME, _MTU, _INFO = 3, 4, 18
_KIND, _DATA = 1, 2
_LEARNING, _PORT, _EXTERNAL = 7, 15, 25


def put_sender(netlink: rtnetlink.Netlink, mtu: int) -> tuple[int, bool]:
    """Make the device, set it up or correct it: its index, and whether anything was changed."""
    index = rtnetlink.index_of(SENDER)
    if index is not None:
        is_up, has_mtu = _check(netlink, index)
        if is_up and has_mtu == mtu:
            return index, False
        body = _LINK.pack(0, 0, index, _UP, _UP) + rtnetlink.number(_MTU, mtu)
        netlink.request(f"set {SENDER} up", rtnetlink.NEW_LINK, 0, body)
        return index, True
    options = rtnetlink.attribute(_EXTERNAL, b"\1") + rtnetlink.attribute(_LEARNING, b"\0")
    options += rtnetlink.attribute(_PORT, struct.pack(">H", SENDING_PORT))
    info = rtnetlink.attribute(_INFO, rtnetlink.text(_KIND, "vxlan") + rtnetlink.attribute(_DATA, options))
    body = _LINK.pack(0, 0, 0, _UP, _UP) + rtnetlink.text(_NAME, SENDER) + rtnetlink.number(_MTU, mtu) + info
    try:
        netlink.request(
            f"make the tunnel {SENDER} on UDP port {SENDING_PORT}",
            rtnetlink.NEW_LINK,
            rtnetlink.CREATE | rtnetlink.EXCLUSIVE,
            body,
        )
    except rtnetlink.NetlinkError as error:
        if error.number != errno.EEXIST:  # made for another tenant at this moment
            raise
    index = rtnetlink.index_of(SENDER)
    if index is None:
        raise PlaneError(
            f"the tunnel {SENDER} was removed as soon as it was made; stop the program that removes devices"
        )
    return index, True


def remove_sender(netlink: rtnetlink.Netlink) -> None:
    index = rtnetlink.index_of(SENDER)
    if index is not None:
        netlink.request(f"remove {SENDER}", rtnetlink.DELETE_LINK, 0, _LINK.pack(0, 0, index, 0, 0))


def _check(netlink: rtnetlink.Netlink, index: int) -> tuple[bool, int]:
    """Whether it is up, and its MTU; PlaneError for another device of that name."""
    answer = netlink.request(f"describe {SENDER}", rtnetlink.GET_LINK, 0, _LINK.pack(0, 0, index, 0, 0))[0]
    attributes = rtnetlink.attributes(answer, _LINK.size)
    info = rtnetlink.attributes(attributes.get(_INFO, b""))
    options = rtnetlink.attributes(info.get(_DATA, b""))
    is_ours = info.get(_KIND, b"").rstrip(b"\0") == b"vxlan" and options.get(_EXTERNAL, b"\0") == b"\1"
    if not is_ours or options.get(_PORT) != struct.pack(">H", SENDING_PORT):
        raise PlaneError(
            f"there is another device {SENDER}, which is not the sending tunnel of UDP port {SENDING_PORT}; "
            f"rename or remove it"
        )
    return bool(_LINK.unpack_from(answer)[3] & _UP), struct.unpack("=I", attributes[_MTU])[0]
