"""/v1/events: what happened, and what happens."""

import asyncio
import contextlib
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from trimtab.core import TrimtabError
from trimtab.serve.http.answer import Answer, failed, page_answer, reply
from trimtab.serve.http.call import Parts
from trimtab.serve.http.query import Asked, query_of
from trimtab.serve.http.router import Caller, PageAsked, PageOf, Router
from trimtab.serve.hub import Batch, Listener
from trimtab.serve.principal import LOCAL
from trimtab.serve.problems import HttpError
from trimtab.store import Event, WantedEvents

router = Router("events")
_MOST = 5000  # listeners
_PATIENCE = 30.0  # s for which a listener may take nothing
_DROPPED = b'event: dropped\ndata: "you were too slow; ask again from the last id you have seen"\n\n'
_REVOKED = b'event: dropped\ndata: "your token opens nothing any more"\n\n'
STREAM = "/v1/events/stream"
"""Where events are sent as they happen."""

_HEADERS = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"))


class EventsAsked(PageAsked):
    """Which events."""

    kind: str | None = Field(None, max_length=100)
    subject: str | None = Field(None, max_length=200)
    tenant: str | None = Field(None, max_length=100)


class StreamAsked(Asked):
    """Which events: of kinds by their names, or by what stands before the dot in them; after which id."""

    kind: list[str] = Field([], max_length=20)
    since: int | None = Field(None, ge=0, le=2**63 - 1)


@router.reads("/events", PageOf[Event])
def list_events(call: Caller, query: Annotated[EventsAsked, Query()]) -> Answer:
    """Events, newest first; the audit log among them for admins."""
    tenants = None if query.tenant is None else (query.tenant,)
    wanted = WantedEvents(query.kind, query.subject, tenants)
    return page_answer(call.scope, call.service.events.page_text(query.limit, wanted, query.after))


class Stream:
    """Server-sent events, from now on or from the last id the caller has seen."""

    path = STREAM
    methods = ("GET",)

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer, until the caller goes."""
        parts: Parts = scope["trimtab.parts"]
        try:
            principal = await parts.ask(lambda: parts.gate.admit(scope))
            principal.require("events")
            if parts.hub.listeners >= _MOST:
                raise HttpError(429, "too many listen already; try again later", (("retry-after", "60"),))
            asked = query_of(StreamAsked, scope["query_string"])
            since = _last_seen(scope, asked)
        except TrimtabError as error:
            await reply(send, failed(error, scope))
            return
        listener = parts.hub.listen(principal, tuple(sorted(set(asked.kind))))
        gone = asyncio.create_task(_until_gone(receive, listener))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            await _catch_up(parts, listener, since, send)
            await self._follow(parts, listener, since or 0, scope, send)
        except TimeoutError:
            pass  # it takes nothing: the connection is given up
        finally:
            parts.hub.leave(listener)
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone

    async def _follow(self, parts: Parts, listener: Listener, since: int, scope: Any, send: Any) -> None:
        """Pass on what comes, until the caller has gone, is lost, or may listen no more."""
        while (batch := await listener.heard()) is not None:
            if not await parts.ask(lambda: _still_known(parts, listener, scope)):
                await _say(send, _REVOKED, more=False)
                return
            text = batch.text(listener.principal, listener.kinds, since)
            if text:
                await _say(send, text)
        await _say(send, _DROPPED if listener.lost else b"", more=False)


async def _catch_up(parts: Parts, listener: Listener, since: int | None, send: Any) -> None:
    """What was missed, oldest first; then a first word, so that the caller knows that it listens."""
    while since is not None and since < listener.since:
        missed = await parts.hub.before(listener, since)
        if not missed:
            break
        since = missed[-1].id
        await _say(send, Batch(missed).text(listener.principal, listener.kinds))
    await _say(send, b": listening\n\n")


async def _say(send: Any, text: bytes, more: bool = True) -> None:
    async with asyncio.timeout(_PATIENCE):
        await send({"type": "http.response.body", "body": text, "more_body": more})


async def _until_gone(receive: Any, listener: Listener) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    listener.close()


def _still_known(parts: Parts, listener: Listener, scope: Any) -> bool:
    access = parts.gate.access
    if listener.principal is LOCAL:
        return access.open_here
    told = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    try:
        return access.caller(told.decode("latin-1"), False).token == listener.principal.token
    except TrimtabError:
        return False


def _last_seen(scope: Any, asked: StreamAsked) -> int | None:
    told = next((value for name, value in scope["headers"] if name == b"last-event-id"), None)
    if told is None:
        return asked.since
    if not (told.isdigit() and len(told) < 19):
        raise HttpError(400, "Last-Event-ID is no id of an event; send the last you have seen")
    return int(told)
