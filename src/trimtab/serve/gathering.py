"""What is written to a connection at one moment is sent at once: an answer's head with its body.

Each sending wakes who receives. For a small answer that takes as long as all the rest.
"""

import asyncio
from typing import Any


class Gathering:
    """A transport; all but writing is left to the one inside."""

    def __init__(self, inside: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inside = inside
        self._loop = loop
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send it with what else is written before the loop goes on."""
        if not self._pieces:
            self._loop.call_soon(self._send)
        self._pieces.append(data)

    def close(self) -> None:
        """Once all is sent."""
        self._send()
        self._inside.close()

    def set_protocol(self, protocol: Any) -> None:
        """Another one speaks from now on, to the transport itself."""
        self._send()
        self._inside.set_protocol(protocol)

    def _send(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces and not self._inside.is_closing():
            self._inside.writelines(pieces)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)
