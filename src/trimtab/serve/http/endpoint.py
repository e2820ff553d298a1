"""One operation over HTTP: its arguments from a request, ETags, idempotency keys, and the answer."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_origin
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from trimtab.core import BadInputError
from trimtab.serve.access import ForbiddenError, Principal
from trimtab.serve.http.answer import JSON_TYPE, Answer, json_answer, page_answer
from trimtab.serve.operations import AREAS, AUDIT, Area, Backend, Operation
from trimtab.serve.problems import (
    HttpError,
    InvalidError,
    encoded,
    entity_tag,
    require_condition,
    tag_matches,
)
from trimtab.store import Page, Reply

Effect = Callable[[], Answer]

USED_HEADERS = (b"idempotency-key", b"if-match", b"if-none-match")
_UNSTORABLE = "the request holds a NUL character, which cannot be stored; use plain text"
_MOST_FIELDS = 100
_MOST_ERRORS = 10


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

    def read(self, backend: Backend, call: Call) -> Answer:
        """Answer a call that writes nothing; 304 where the caller has the current state already."""
        operation = self.operation
        area = operation.area(backend, call.principal, operation.stored)
        answer = self._answer(call, self._method(area, **self._arguments(call)), operation.success)
        condition = call.headers.get(b"if-none-match")
        if condition is None or not operation.tagged:
            return answer
        current = dict(answer.headers)[b"etag"]
        return Answer(304, b"", ((b"etag", current),)) if tag_matches(condition, current) else answer

    def write(self, backend: Backend, call: Call) -> Answer:
        """Answer a call that writes."""
        with audited_refusals(backend, call):
            return self.effect(backend, call)()

    def effect(self, backend: Backend, call: Call) -> Effect:
        """Transaction that is left to do once all is computed that needs none.

        With an Idempotency-Key, the transaction also keeps the answer for repetitions of the request.
        """
        arguments = self._arguments(call)
        key = call.headers.get(b"idempotency-key") if call.method == "POST" else None
        fingerprint = ""
        if key is not None:
            asked = b"\n".join((call.path.encode(), call.query, call.body))
            fingerprint = hashlib.sha256(asked).hexdigest()
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

    def _run(self, area: Area, call: Call, arguments: dict[str, Any]) -> Answer:
        status = 200 if arguments.get("dry_run") else self.operation.success
        return self._answer(call, self._method(area, **arguments), status)

    def _answer(self, call: Call, result: Any, status: int) -> Answer:
        operation = self.operation
        if isinstance(result, Page):
            return page_answer(call.path, call.query, result, operation.stored)
        shown = operation.show(result) if operation.show is not None else result
        if operation.stored:
            body: bytes = shown.encode()
        else:
            body = encoded({"items": shown} if isinstance(shown, tuple) else shown)
        answer = json_answer(body, status, operation.tagged)
        if operation.kept is None:
            return answer
        return Answer(answer.status, answer.body, answer.headers, encoded(operation.kept(result)))

    def _check(self, call: Call) -> dict[str, Callable[[Any], None]]:
        """The check of the caller's condition; none where it is optional and not given."""
        given = call.headers.get(b"if-match"), call.headers.get(b"if-none-match")
        needed = self.operation.condition == "required"
        if not needed and given[0] is None:
            return {}

        def check(now: Any) -> None:
            body = now.encode() if isinstance(now, str) else encoded(now)
            condition = given if needed else (given[0], None)
            require_condition(*condition, None if now is None else entity_tag(body), needed)

        return {"check": check}

    def _arguments(self, call: Call) -> dict[str, Any]:
        arguments: dict[str, Any] = dict(call.path_params)
        if self._model is None:
            return arguments
        if self.has_body:
            given = body_of(self._model, call.body)
        elif call.query:
            given = query_of(self._model, call.query)
        else:
            return arguments
        for name in given.model_fields_set:
            arguments[name] = _plain(getattr(given, name))
        return arguments


def endpoints() -> dict[str, Endpoint]:
    """An endpoint for every operation, by the operation's id."""
    found = (operation for area in AREAS.values() for operation in area.operations.values())
    return {operation.id: Endpoint(operation) for operation in found}


def query_of(model: type[BaseModel], query: bytes) -> BaseModel:
    """The model from a query string; a name may be repeated only where it is a list."""
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise InvalidError("the query has too many parts", ()) from None
    given: dict[str, Any] = {}
    for name, value in pairs:
        if _is_list(model, name):
            given.setdefault(name, []).append(value)
        elif name in given:
            where, what = f"query.{name:.40}", "it stands there twice"
            raise InvalidError(f"{where}: {what}", ({"where": where, "what": what},))
        else:
            given[name] = value
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise _invalid(error, "query") from None


def _is_list(model: type[BaseModel], name: str) -> bool:
    known = model.model_fields.get(name)
    return known is not None and get_origin(known.annotation) in (list, tuple, Sequence)


def body_of(model: type[BaseModel], raw: bytes) -> BaseModel:
    """The model from a JSON body, without any conversion of types."""
    try:
        given = model.model_validate_json(raw, strict=True)
    except ValidationError as error:
        if error.errors(include_url=False)[0]["type"] == "json_invalid":
            raise HttpError(400, "the body is not JSON") from None
        raise _invalid(error, "body") from None
    if b"\\u0000" in raw and _has_nul(json.loads(raw)):
        raise BadInputError(_UNSTORABLE)
    return given


def _invalid(error: ValidationError, where: str) -> InvalidError:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    errors = tuple(
        {"where": ".".join((where, *map(str, each["loc"]))), "what": each["msg"]}
        for each in found[:_MOST_ERRORS]
    )
    return InvalidError(f"{errors[0]['where']}: {errors[0]['what']}", errors)


def _plain(value: Any) -> Any:
    """Models as plain data, with the fields that were given."""
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True, by_alias=True)
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_has_nul(key) or _has_nul(each) for key, each in value.items())
    return isinstance(value, list) and any(map(_has_nul, value))


@contextmanager
def audited_refusals(backend: Backend, call: Call) -> Iterator[None]:
    """Write an audit event when the block raises that the principal may not do this."""
    try:
        yield
    except ForbiddenError as error:
        who = call.principal
        detail = {"who": who.id, "name": who.token.name, "role": who.role.value, "did": "refused"}
        path = call.path[:200].replace("\0", "?")  # else it could not be stored, and the refusal went unnoted
        backend.store.events.append(
            AUDIT, path, {**detail, "what": str(error)}, backend.clock.now(), who.owner_of_new(None)
        )
        raise


def _once(backend: Backend, call: Call, key: str, fingerprint: str, effect: Effect) -> Answer:
    """The answer that was given to the key before, or a new one that is kept for it."""
    made: list[Answer] = []

    def once() -> Reply:
        answer = effect()
        made.append(answer)
        return Reply(answer.status, (answer.kept or answer.body).decode())

    kept = backend.store.replies.once(key, call.principal.id, fingerprint, once)
    return _repeated(kept) if kept.repeated else made[-1]


def _repeated(kept: Reply) -> Answer:
    body = kept.body.encode()
    return Answer(
        kept.status, body, (JSON_TYPE, (b"idempotent-replay", b"true"), (b"etag", entity_tag(body)))
    )
