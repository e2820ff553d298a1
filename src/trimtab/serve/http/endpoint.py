"""One operation over HTTP: from a request to its arguments, ETags, idempotency keys, and the answer."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, get_origin
from urllib.parse import parse_qsl, urlencode

import orjson
from pydantic import BaseModel, ValidationError

from trimtab.core import BadInputError, TrimtabError, to_plain
from trimtab.serve.access import ForbiddenError, Principal
from trimtab.serve.operations import AREAS, AUDIT, Area, Backend, Operation, encoded
from trimtab.serve.problems import (
    MEDIA_TYPE,
    HttpError,
    InvalidError,
    Problem,
    entity_tag,
    plain_problem,
    problem_of,
    require_condition,
    tag_matches,
)
from trimtab.store import Page, Reply, Store

if TYPE_CHECKING:
    from trimtab.serve.http.middleware import Gate
    from trimtab.serve.processes.writer import Writer

T = TypeVar("T")
Headers = tuple[tuple[bytes, bytes], ...]

_JSON_TYPE = (b"content-type", b"application/json")
_PROBLEM_TYPE = (b"content-type", MEDIA_TYPE.encode())
_USED_HEADERS = (b"idempotency-key", b"if-match", b"if-none-match")
_MOST_FIELDS = 300
_MOST_ERRORS = 10
_THREADS = 48  # many that wait for the disk share one sync of it


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A response. `kept` is the body for repetitions of the request's key, if that is not `body`."""

    status: int
    body: bytes
    headers: Headers = (_JSON_TYPE,)
    kept: bytes | None = None

    async def send(self, send: Any) -> None:
        headers = [*self.headers, (b"content-length", str(len(self.body)).encode())]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


Effect = Callable[[], HttpAnswer]


def page_answer(path: str, query: bytes, page: Page[Any], texts: bool) -> HttpAnswer:
    """A page of a list, with a Link header to the next one; its items are JSON `texts`, or objects."""
    items = page.items if texts else [encoded(item).decode() for item in page.items]
    following = b"null" if page.next is None else orjson.dumps(page.next)
    body = b'{"items":[' + ",".join(items).encode() + b'],"next":' + following + b"}"
    if page.next is None:
        return HttpAnswer(200, body)
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    link = urlencode([*((name, value) for name, value in pairs if name != "after"), ("after", page.next)])
    return HttpAnswer(200, body, (_JSON_TYPE, (b"link", f'<{path}?{link}>; rel="next"'.encode())))


def problem_answer(problem: Problem, headers: Iterable[tuple[str, str]] = ()) -> HttpAnswer:
    plain = {name: value for name, value in to_plain(problem).items() if value not in ("", [])}
    more = tuple((name.lower().encode(), value.encode()) for name, value in headers)
    return HttpAnswer(problem.status, orjson.dumps(plain), (_PROBLEM_TYPE, *more))


def error_answer(error: TrimtabError, request_id: str) -> HttpAnswer:
    problem = problem_of(error, request_id)
    headers = error.headers if isinstance(error, HttpError) else ()
    if problem.status == 401:
        headers = (*headers, ("www-authenticate", "Bearer"))
    return problem_answer(problem, headers)


def crash_answer(request_id: str) -> HttpAnswer:
    """Answer to a request that met a bug, which the log has under the request's id."""
    return problem_answer(plain_problem(500, f"this is a bug; the log has it as {request_id}", request_id))


@dataclass(frozen=True, slots=True)
class Call:
    """A request of a known principal, as far as an operation needs it; it can be sent to another process."""

    id: str
    principal: Principal
    method: str
    path: str
    path_params: Mapping[str, str]
    query: bytes
    headers: Mapping[bytes, str] = field(default_factory=dict)
    body: bytes = b""


class Endpoint:
    """Carries out calls of one operation."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self._method = getattr(operation.area, operation.name)
        self._model = operation.model
        self.has_body = operation.writes and self._model is not None

    def read(self, backend: Backend, call: Call) -> HttpAnswer:
        """Answer a call that writes nothing; 304 if the caller has the current state already."""
        operation = self.operation
        area = operation.area(backend, call.principal, operation.stored)
        answer = self._answer(call, self._method(area, **self._arguments(call)), operation.success)
        condition = call.headers.get(b"if-none-match")
        if condition is None or not operation.tagged:
            return answer
        current = dict(answer.headers)[b"etag"]
        return HttpAnswer(304, b"", ((b"etag", current),)) if tag_matches(condition, current) else answer

    def write(self, backend: Backend, call: Call) -> HttpAnswer:
        with audited_refusals(backend, call):
            return self.effect(backend, call)()

    def effect(self, backend: Backend, call: Call) -> Effect:
        """The transaction of a call, after everything is computed that needs none.

        With an Idempotency-Key, the transaction also keeps the answer for repetitions of the request.
        """
        arguments = self._arguments(call)
        key = call.headers.get(b"idempotency-key") if call.method == "POST" else None
        fingerprint = ""
        if key is not None:
            request = b"\n".join((call.path.encode(), call.query, call.body))
            fingerprint = hashlib.sha256(request).hexdigest()
            if self.operation.prepare:
                kept = backend.store.replies.find(key, call.principal.id, fingerprint)
                if kept is not None:
                    return partial(_repeated, kept)
        area = self.operation.area(backend, call.principal)
        if self.operation.prepare:
            arguments["prepared"] = getattr(area, self.operation.prepare)(**arguments)
        if self.operation.condition:
            arguments.update(self._check(call))
        effect = partial(self._run, area, call, arguments)
        return effect if key is None else partial(_once, backend, call, key, fingerprint, effect)

    def _run(self, area: Area, call: Call, arguments: dict[str, Any]) -> HttpAnswer:
        status = 200 if arguments.get("dry_run") else self.operation.success
        return self._answer(call, self._method(area, **arguments), status)

    def _answer(self, call: Call, result: Any, status: int) -> HttpAnswer:
        operation = self.operation
        if isinstance(result, Page):
            return page_answer(call.path, call.query, result, operation.stored)
        shown = operation.show(result) if operation.show is not None else result
        if operation.stored:
            body: bytes = shown.encode()
        else:
            body = encoded({"items": shown} if isinstance(shown, tuple) else shown)
        headers = (_JSON_TYPE, (b"etag", entity_tag(body))) if operation.tagged else (_JSON_TYPE,)
        kept = None if operation.kept is None else encoded(operation.kept(result))
        return HttpAnswer(status, body, headers, kept)

    def _check(self, call: Call) -> dict[str, Callable[[Any], None]]:
        """The check of the caller's condition; empty if it is optional and not given."""
        if_match, if_none_match = call.headers.get(b"if-match"), call.headers.get(b"if-none-match")
        needed = self.operation.condition == "required"
        if not needed and if_match is None:
            return {}

        def check(now: Any) -> None:
            body = now.encode() if isinstance(now, str) else encoded(now)
            current = None if now is None else entity_tag(body)
            require_condition(if_match, if_none_match if needed else None, current, needed)

        return {"check": check}

    def _arguments(self, call: Call) -> dict[str, Any]:
        arguments: dict[str, Any] = dict(call.path_params)
        if self._model is None:
            return arguments
        if self.has_body:
            request = body_of(self._model, call.body)
        elif call.query:
            request = query_of(self._model, call.query)
        else:
            return arguments
        for name in request.model_fields_set:
            arguments[name] = _plain(getattr(request, name))
        return arguments


def endpoints() -> dict[str, Endpoint]:
    """An endpoint for every operation, by the operation's id."""
    operations = (operation for area in AREAS.values() for operation in area.operations.values())
    return {operation.id: Endpoint(operation) for operation in operations}


def query_of(model: type[BaseModel], query: bytes) -> BaseModel:
    """The model from a query string; only a list's name may be repeated."""
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise InvalidError(f"the query has more than {_MOST_FIELDS} fields", ()) from None
    given: dict[str, Any] = {}
    for name, value in pairs:
        known = model.model_fields.get(name)
        if known is not None and get_origin(known.annotation) in (list, tuple, Sequence):
            given.setdefault(name, []).append(value)
        elif name in given:
            where, problem = f"query.{name:.40}", "it is given twice"
            raise InvalidError(f"{where}: {problem}", ({"where": where, "what": problem},))
        else:
            given[name] = value
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise _invalid(error, "query") from None


def body_of(model: type[BaseModel], raw: bytes) -> BaseModel:
    """The model from a JSON body, without any conversion of types."""
    try:
        body = model.model_validate_json(raw, strict=True)
    except ValidationError as error:
        kinds = {detail["type"] for detail in error.errors(include_url=False)}
        if "json_invalid" in kinds:
            raise HttpError(400, "the body is not JSON") from None
        if "int_type" not in kinds:
            raise _invalid(error, "body") from None
        # JSON does not tell 8.0 from 8.
        try:
            body = model.model_validate_json(json.dumps(json.loads(raw, parse_float=_number)), strict=True)
        except ValidationError:
            raise _invalid(error, "body") from None
    if b"\\u0000" in raw and _has_nul(json.loads(raw)):
        raise BadInputError("the request holds a NUL character, which cannot be stored; use plain text")
    return body


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _invalid(error: ValidationError, where: str) -> InvalidError:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    errors = tuple(
        {"where": ".".join((where, *map(str, detail["loc"]))), "what": detail["msg"]}
        for detail in details[:_MOST_ERRORS]
    )
    return InvalidError(f"{errors[0]['where']}: {errors[0]['what']}", errors)


def _plain(value: Any) -> Any:
    """Models as plain data, with the fields that were given."""
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True, by_alias=True)
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_has_nul(key) or _has_nul(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_has_nul, value))


@contextmanager
def audited_refusals(backend: Backend, call: Call) -> Iterator[None]:
    """Note in the audit log that the principal may not do this."""
    try:
        yield
    except ForbiddenError as error:
        who = call.principal
        detail = {"who": who.id, "name": who.token.name, "role": who.role.value, "did": "refused"}
        path = call.path[:200].replace("\0", "?")  # a path with NUL could not be stored
        backend.store.events.append(
            AUDIT, path, {**detail, "what": str(error)}, backend.clock.now(), who.owner_of_new(None)
        )
        raise


def _once(backend: Backend, call: Call, key: str, fingerprint: str, effect: Effect) -> HttpAnswer:
    """The answer kept for the key, or a new one that is kept for it."""
    answers: list[HttpAnswer] = []

    def once() -> Reply:
        answer = effect()
        answers.append(answer)
        return Reply(answer.status, (answer.kept or answer.body).decode())

    kept = backend.store.replies.once(key, call.principal.id, fingerprint, once)
    return _repeated(kept) if kept.repeated else answers[-1]


def _repeated(kept: Reply) -> HttpAnswer:
    body = kept.body.encode()
    return HttpAnswer(
        kept.status, body, (_JSON_TYPE, (b"idempotent-replay", b"true"), (b"etag", entity_tag(body)))
    )


class WorkerThreads:
    """Threads for work that may take long; short queries of a file run at once."""

    def __init__(self, store: Store) -> None:
        self.threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="api")
        self._is_file = store.is_file

    async def ask(self, question: Callable[[], T]) -> T:
        """Result of a short query of the store: at once from a file, in a thread from a database server."""
        return question() if self._is_file else await self.in_thread(question)

    def in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self.threads, work)


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """ASGI application of one path: carries out the operation of the request's method."""

    methods: Mapping[str, Endpoint]
    backend: Backend
    gate: "Gate"
    workers: WorkerThreads
    writer: "Writer | None"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        method = scope["method"]
        endpoint = self.methods["GET" if method == "HEAD" else method]
        principal = await self.workers.ask(lambda: self.gate.admit(scope))
        call = Call(
            scope["trimtab.id"],
            principal,
            method,
            scope["path"],
            scope["path_params"],
            scope["query_string"],
            {name: value.decode("latin-1") for name, value in scope["headers"] if name in _USED_HEADERS},
            await _json_body(scope, receive) if endpoint.has_body else b"",
        )
        answer = await self._answer(endpoint, call, scope)
        await answer.send(send)

    async def _answer(self, endpoint: Endpoint, call: Call, scope: Any) -> HttpAnswer:
        """Reads of a file answer at once, short writes in the writer's process, all else in a thread."""
        operation, backend, writer = endpoint.operation, self.backend, self.writer
        if not operation.writes:
            if not operation.slow and backend.store.is_file:
                return endpoint.read(backend, call)
            return await self.workers.in_thread(lambda: endpoint.read(backend, call))
        if not operation.slow and writer is not None and writer.connected:
            result = await writer.write(operation.id, call)
            if result.why is not None:
                scope["trimtab.why"] = result.why
            return result.answer
        return await self.workers.in_thread(lambda: endpoint.write(backend, call))


async def _json_body(scope: Any, receive: Any) -> bytes:
    kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    if kind.partition(b";")[0].strip().lower() != b"application/json":
        raise HttpError(415, "the body should be JSON, with Content-Type: application/json")
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpError(400, "the request ended before its body did")
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
