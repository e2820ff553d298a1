"""One page that somebody looks at: what they may ask for, and answers that all who look share."""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from trimtab.serve.access import Principal
from trimtab.serve.dashboard.pulse import Pulse, Remembered
from trimtab.serve.dashboard.sessions import AT_THE_MACHINE, Sessions
from trimtab.serve.dashboard.tail import Tails
from trimtab.serve.operations import Backend, Service

T = TypeVar("T")
KEY = "trimtab.visit"
"""Under which a request's scope has its visit."""

FRESH = 5.0
"""Seconds after which an answer is asked for again, also when no event has told of a change."""


@dataclass(frozen=True, slots=True)
class Visit:
    """Somebody at a page. Every question finds out anew who asks, so that it ends with their token."""

    backend: Backend
    sessions: Sessions
    pulse: Pulse
    remembered: Remembered
    tails: Tails
    session: str

    @property
    def principal(self) -> Principal:
        """Who looks; raises once they are signed out."""
        return self.sessions.holder(self.session)

    @property
    def service(self) -> Service:
        """What they may ask for."""
        return Service(self.backend, self.principal)

    @property
    def signed_in(self) -> bool:
        """Whether they came with a token, and can sign out."""
        return self.session != AT_THE_MACHINE

    async def do(self, operation: Callable[[Service], T]) -> T:
        """An operation, beside the loop that serves everybody."""
        return await asyncio.to_thread(operation, self.service)

    async def ask(
        self,
        name: Hashable,
        question: Callable[[Service], T],
        areas: tuple[str, ...] = (),
        age: float = FRESH,
    ) -> T:
        """The answer to a question under a name, shared with all who may see the same."""
        who = self.principal
        key = (name, who.tenants, who.role, who.token.scopes)
        return await self.remembered.get(
            key, self.pulse.stamp(who, areas), age, lambda: asyncio.to_thread(question, self.service)
        )


def visit_of(request: Request) -> Visit:
    """The visit that a request begins."""
    found: Visit = request.scope[KEY]
    return found


def same_session(scope: Any, session: str) -> bool:
    """Whether a page's own request belongs to who opened it."""
    found: Visit | None = scope.get(KEY)
    return found is not None and found.session == session
