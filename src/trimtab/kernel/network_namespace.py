"""A new network namespace with nothing but loopback, which the kernel removes after its last use."""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import threading
from typing import Self

from trimtab.core import TrimtabError

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


class NoNamespaceError(TrimtabError):
    """No network namespace can be made here: that takes root, or the capability to administer the system."""


class NetworkNamespace:
    """Use as a context; `enter` is for a child between fork and exec."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        results = list[int | OSError]()
        # A namespace belongs to a thread: this one enters a new one, opens it, and ends.
        thread = threading.Thread(target=self._make, args=(results,))
        thread.start()
        thread.join()
        if isinstance(results[0], OSError):
            raise NoNamespaceError(f"no network namespace can be made here: {results[0].strerror}")
        self._handle = results[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        os.close(self._handle)

    def enter(self) -> None:
        """Move the calling thread, and processes that it starts, into the namespace."""
        if self._libc.setns(self._handle, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def _make(self, results: list[int | OSError]) -> None:
        try:
            if self._libc.unshare(_CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as control:
                # struct ifreq: a name of 16 bytes, then flags as a short.
                fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))
            results.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            results.append(error)
