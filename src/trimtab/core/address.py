"""Addresses of servers as people write them: a host and a port."""

import re
from ipaddress import ip_address

from trimtab.core.errors import BadInputError


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port"; a host with colons stands in brackets."""
    host, colon, port = address.rpartition(":")
    plain = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not re.fullmatch(r"[\w.:-]+", plain) or not port.isdecimal() or int(port) > 65535:
        raise BadInputError(f'"{address:.80}" is not an address such as 127.0.0.1:7433')
    if ":" in plain and plain == host:
        raise BadInputError(
            f'"{address:.80}" is not an address; put a host with colons in brackets, [::1]:7433'
        )
    return plain, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that host; of names, nobody is asked, and only localhost is."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
