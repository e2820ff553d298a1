"""A route that FastAPI documents and that answers without its detours.

FastAPI takes three times as long to find out what to call a handler with as the store takes to answer. So a
route here is called with what its signature names: `call`, `query` (a model), `body` (a model), and the parts
of its path. Handlers that read return an Answer. Those that write return an effect: what can be worked out
before is, and the effect runs as one write, with the answer that is kept for the request's key.
"""

import asyncio
import hashlib
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, get_args, get_origin

from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from trimtab.core import BadInputError, TrimtabError
from trimtab.serve.conditions import matches
from trimtab.serve.errors import ForbiddenError
from trimtab.serve.http.answer import Answer, failed, reply, tag
from trimtab.serve.http.call import Call, Parts
from trimtab.serve.http.query import invalid, query_of
from trimtab.serve.operations import AUDIT
from trimtab.serve.problems import HttpError
from trimtab.store import Reply

Effect = Callable[[], Answer]
KEY = b"idempotency-key"
_UNSTORABLE = "the request holds a NUL character, which cannot be stored; use plain text"


class Route(APIRoute):
    """Calls its endpoint on the loop where it only reads what the store has at hand, else elsewhere.

    That is a thread, or for short writes the process that does them together, where there is one.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **told: Any) -> None:
        super().__init__(path, endpoint, **told)
        named = inspect.signature(endpoint, eval_str=True).parameters
        self._query = _model(named.get("query"))
        self._body = _model(named.get("body"))
        self._writes = "GET" not in (self.methods or ())
        self._costly = self._writes and getattr(endpoint, "slow", False)
        self._slow = self._writes or getattr(endpoint, "slow", False)

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request that is for this route."""
        parts: Parts = scope["trimtab.parts"]
        try:
            call = Call(parts, await parts.ask(lambda: parts.gate.admit(scope)), scope)
            answer = await self._answer(call, receive)
        except TrimtabError as error:
            answer = failed(error, scope)
        await reply(send, answer)

    async def _answer(self, call: Call, receive: Any) -> Answer:
        raw = await read_json(call, receive) if self._body is not None else b""
        parts = call.parts
        if not self._slow and parts.quick:
            return self.read(call, raw)
        if self._writes and not self._costly and parts.writer is not None and parts.writer.there:
            return await parts.writer.ask(self.path, call, raw)
        loop = asyncio.get_running_loop()
        work = self.written if self._writes else self.read
        return await loop.run_in_executor(parts.threads, work, call, raw)

    def read(self, call: Call, raw: bytes) -> Answer:
        """Answer a request that writes nothing."""
        return not_modified(call, self.endpoint(call=call, **self._arguments(call, raw)))

    def written(self, call: Call, raw: bytes) -> Answer:
        """Answer a request that writes."""
        with noting_refusals(call):
            return self.prepared(call, raw)()

    def prepared(self, call: Call, raw: bytes) -> Effect:
        """What is left to do for a request once all is worked out that needs no transaction."""
        arguments = self._arguments(call, raw)
        key = call.header(KEY) if call.scope["method"] == "POST" else None
        if key is None:
            effect: Effect = self.endpoint(call=call, **arguments)
            return effect
        asked = b"\n".join((call.scope["path"].encode(), call.scope["query_string"], raw))
        fingerprint = hashlib.sha256(asked).hexdigest()
        if self._costly:
            kept = call.parts.desk.store.replies.find(key, call.principal.id, fingerprint)
            if kept is not None:
                return partial(_repeated, kept)
        return partial(_once, call, key, fingerprint, self.endpoint(call=call, **arguments))

    def _arguments(self, call: Call, raw: bytes) -> dict[str, Any]:
        arguments = dict(call.scope["path_params"])
        if self._query is not None:
            arguments["query"] = query_of(self._query, call.scope["query_string"])
        if self._body is not None:
            arguments["body"] = self._body_of(raw)
        return arguments

    def _body_of(self, raw: bytes) -> Any:
        assert self._body is not None
        try:
            told = self._body.model_validate_json(raw, strict=True)
        except ValidationError as error:
            if error.errors(include_url=False)[0]["type"] == "json_invalid":
                raise HttpError(400, "the body is not JSON") from None
            raise invalid(error, "body") from None
        if b"\\u0000" in raw and _has_nul(json.loads(raw)):
            raise BadInputError(_UNSTORABLE)
        return told


def slow(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a handler that reads more than a row or a page of the store, or works long before it writes."""
    endpoint.slow = True  # type: ignore[attr-defined]
    return endpoint


async def read_json(call: Call, receive: Any) -> bytes:
    """The body of a request that says it is JSON."""
    kind = (call.header(b"content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HttpError(415, "the body should be JSON, with Content-Type: application/json")
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpError(400, "the request ended before its body did")
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def not_modified(call: Call, answer: Answer) -> Answer:
    """The answer, or that it is what the caller has already."""
    condition = call.header(b"if-none-match")
    current = dict(answer.headers).get(b"etag")
    if condition is None or current is None or not matches(condition, current):
        return answer
    return Answer(304, b"", ((b"etag", current),))


@contextmanager
def noting_refusals(call: Call) -> Iterator[None]:
    """Who tries to write what they may not is noted."""
    try:
        yield
    except ForbiddenError as error:
        _note_refusal(call, str(error))
        raise


def _once(call: Call, key: str, fingerprint: str, effect: Effect) -> Answer:
    """The answer that was given to the key before, or a new one that is kept for it."""
    made: list[Answer] = []

    def once() -> Reply:
        answer = effect()
        made.append(answer)
        return Reply(answer.status, (answer.kept or answer.body).decode())

    reply = call.parts.desk.store.replies.once(key, call.principal.id, fingerprint, once)
    return _repeated(reply) if reply.repeated else made[-1]


def _repeated(reply: Reply) -> Answer:
    body = reply.body.encode()
    headers = ((b"content-type", b"application/json"), (b"idempotent-replay", b"true"))
    return Answer(reply.status, body, (*headers, (b"etag", tag(body))))


def _note_refusal(call: Call, why: str) -> None:
    who, desk = call.principal, call.parts.desk
    detail = {"who": who.id, "name": who.token.name, "role": who.role.value, "did": "refused", "what": why}
    tenant = who.tenant_for(None)
    path = call.scope["path"][:200].replace("\0", "?")  # what cannot be stored must not go unnoted
    desk.store.events.append(AUDIT, path, detail, desk.clock.now(), tenant)


def _model(parameter: inspect.Parameter | None) -> type[BaseModel] | None:
    if parameter is None:
        return None
    kind = parameter.annotation
    model: type[BaseModel] = get_args(kind)[0] if get_origin(kind) is not None else kind
    return model


def _has_nul(told: Any) -> bool:
    if isinstance(told, str):
        return "\0" in told
    if isinstance(told, dict):
        return any(_has_nul(key) or _has_nul(value) for key, value in told.items())
    return isinstance(told, list) and any(map(_has_nul, told))
