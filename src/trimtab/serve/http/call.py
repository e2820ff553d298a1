"""One request, as an operation's handler sees it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from trimtab.serve.http.gate import Gate
from trimtab.serve.hub import Hub
from trimtab.serve.operations import Desk, Service
from trimtab.serve.principal import Principal

if TYPE_CHECKING:
    from trimtab.serve.http.writer import Writer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parts:
    """What all requests share.

    `quick`: the store answers short questions without waiting for a network; `writer` does short writes.
    """

    desk: Desk
    gate: Gate
    hub: Hub
    threads: ThreadPoolExecutor
    quick: bool
    writer: "Writer | None" = None

    async def ask(self, question: Callable[[], T]) -> T:
        """The answer to a short question to the store, from a thread where that may have to wait."""
        if self.quick:
            return question()
        return await asyncio.get_running_loop().run_in_executor(self.threads, question)


class Call:
    """A request of a known caller."""

    def __init__(self, parts: Parts, principal: Principal, scope: Any) -> None:
        self.parts = parts
        self.principal = principal
        self.scope = scope

    @property
    def service(self) -> Service:
        """What the caller can ask for."""
        return Service(self.parts.desk, self.principal)

    def header(self, name: bytes) -> str | None:
        """The first header of a name in small letters."""
        found = next((value for known, value in self.scope["headers"] if known == name), None)
        return None if found is None else found.decode("latin-1")
