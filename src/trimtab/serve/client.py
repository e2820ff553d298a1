"""The operations of a server over HTTP; requests whose answers are lost are repeated."""

import inspect
import json
import random
import secrets
import time
from collections.abc import Iterator, Mapping
from functools import partial
from hashlib import sha256
from typing import Any, Self, get_args, get_origin
from urllib.parse import quote

from pydantic import TypeAdapter

from trimtab.core import (
    BadInputError,
    MissingDependencyError,
    NotFoundError,
    TrimtabError,
    from_plain,
    to_plain,
)
from trimtab.serve.operations import AREAS, AllOperations, Area, Operation, encoded
from trimtab.serve.problems import MEDIA_TYPE, Problem, error_of
from trimtab.store import Event, Page

FIRST_WAIT = 0.1
"""Seconds before a request is sent again; each time twice as long."""

_TRIES = 5
_LONGEST_WAIT = 5.0  # s
_RETRIED = (429, 502, 503, 504)
_TIMEOUT, _CONNECT_TIMEOUT = 60.0, 10.0  # s
_PAGE = 100  # items
_STREAM = "/v1/events/stream"


class UnreachableError(TrimtabError):
    """No server answers there, or none that is Trimtab's."""


class Client(AllOperations):
    """The operations of a server. `verify` is httpx's: True, or an SSL context that trusts its certificate.

    A request whose answer is lost is sent again with the same key; errors are raised as on the server.
    """

    def __init__(self, url: str, token: str = "", verify: Any = True) -> None:
        self._connection = Connection(url, token, verify)

    def __getattr__(self, name: str) -> Any:
        if name not in AREAS:
            raise AttributeError(name)
        kind = _RemoteEvents if name == "events" else _RemoteArea
        area = kind(AREAS[name], self._connection)
        setattr(self, name, area)
        return area

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class _RemoteArea:
    """An area whose operations a server carries out; its other methods, composed of them, run here."""

    def __init__(self, area: type[Area], connection: "Connection") -> None:
        self._area = area
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        operation = self._area.operations.get(name)
        if operation is not None:
            return partial(_call, self._connection, operation)
        return partial(getattr(self._area, name), self)


class _RemoteEvents(_RemoteArea):
    def follow(self, since: int | None = None, kinds: tuple[str, ...] = ()) -> Iterator[Event]:
        """Events as they happen, without end, after the id `since`."""
        for plain in self._connection.events(since, kinds):
            yield from_plain(Event, plain, "an event")


def _call(connection: "Connection", operation: Operation, *args: Any, **kwargs: Any) -> Any:
    """Result of an operation of the server, called with the arguments of the method."""
    arguments = inspect.signature(operation.function).bind(None, *args, **kwargs).arguments
    path = operation.path.format(
        **{name: quote(arguments[name], safe="") or "%20" for name in operation.path_names}
    )
    names = (parameter.name for parameter in operation.request)
    sent = {name: to_plain(arguments[name]) for name in names if name in arguments}
    if not operation.writes:
        if get_origin(operation.result) is Page:
            return _pages(connection, operation, path, sent)
        return _result(operation, connection.send("GET", path, params=_without_none(sent)).json())
    body = sent if operation.model is not None else None
    headers = {}
    if operation.method == "POST":
        key = sha256(encoded(body)).hexdigest() if operation.content_key else secrets.token_hex(16)
        headers["Idempotency-Key"] = key
    if operation.condition == "required":
        # The condition that the resource is as it is now, or that there is none yet.
        try:
            headers["If-Match"] = connection.send("GET", path).headers["etag"]
        except NotFoundError:
            if operation.method != "PUT":
                raise
            headers["If-None-Match"] = "*"
    return _result(operation, connection.send(operation.method, path, headers, body=body).json())


def _pages(connection: "Connection", operation: Operation, path: str, sent: dict[str, Any]) -> Page[Any]:
    """At most `limit` items of a list, over as many requests as it takes."""
    default = inspect.signature(operation.function).parameters["limit"].default
    limit, after, items = sent.pop("limit", default), sent.pop("after", None), list[Any]()
    while True:
        query = {**sent, "limit": min(limit - len(items), _PAGE), "after": after}
        page = connection.send("GET", path, params=_without_none(query)).json()
        items += page["items"]
        after = page["next"]
        if after is None or len(items) >= limit:
            break
    kind = get_args(inspect.signature(operation.function).return_annotation)[0]
    return Page(TypeAdapter(tuple[kind, ...]).validate_python(items), after)  # type: ignore[valid-type]


def _result(operation: Operation, answer: Any) -> Any:
    """Result of the method from the answer; fields that its type does not have are dropped."""
    if operation.read is not None:
        return operation.read(answer)
    kind = inspect.signature(operation.function).return_annotation
    plain = answer["items"] if get_origin(kind) is tuple else answer
    return TypeAdapter(kind).validate_python(plain)


class Connection:
    """HTTP to the server at a URL, with a token."""

    def __init__(self, url: str, token: str, verify: Any) -> None:
        try:
            import httpx
        except ImportError:
            raise MissingDependencyError(
                "a server's client needs the httpx package; pip install 'trimtab[serve]'"
            ) from None
        if not url.startswith(("http://", "https://")):
            raise BadInputError(
                f'"{url:.80}" is not the URL of a server; write it like https://trimtab.example:7430'
            )
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._errors = httpx.HTTPError
        timeout = httpx.Timeout(_TIMEOUT, connect=_CONNECT_TIMEOUT)
        self._client = httpx.Client(base_url=url, headers=headers, timeout=timeout, verify=verify)
        self._url = url

    def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> Any:
        """The successful response; sends the request again if the answer is lost or the server is busy."""
        content = None if body is None else encoded(body)
        sent = {**(headers or {}), **({"Content-Type": "application/json"} if content is not None else {})}
        wait, reason = FIRST_WAIT, ""
        for left in reversed(range(_TRIES)):
            try:
                answer = self._client.request(method, path, headers=sent, params=params, content=content)
            except self._errors as error:
                reason = str(error).lower() or type(error).__name__
            else:
                if answer.is_success:
                    return answer
                if answer.status_code not in _RETRIED or not left:
                    raise _refusal(answer)
                wait = max(wait, float(answer.headers.get("retry-after", 0)))
            if left:
                time.sleep(min(wait, _LONGEST_WAIT) * random.uniform(0.5, 1.0))
                wait *= 2
        raise UnreachableError(
            f"no server answers at {self._url}: {reason}; check that trimtab up runs there"
        )

    def events(self, since: int | None, kinds: tuple[str, ...]) -> Iterator[Any]:
        """Events as they happen, from one id on; connects again by itself when the connection breaks.

        Raises where the server refuses, as after the restore of a backup that lacks events received before.
        """
        wait = FIRST_WAIT
        while True:
            query: dict[str, Any] = {"kind": list(kinds), **({} if since is None else {"since": since})}
            try:
                with self._client.stream("GET", _STREAM, params=query, timeout=_TIMEOUT) as answer:
                    if answer.status_code == 200:
                        for line in answer.iter_lines():
                            name, _, value = line.partition(": ")
                            if name == "id" and since is None:
                                since, wait = int(value), FIRST_WAIT  # the last event before it listened
                            elif name == "data" and value.startswith("{"):
                                event = json.loads(value)
                                since, wait = event["id"], FIRST_WAIT
                                yield event
                    else:
                        answer.read()
                        if answer.status_code not in _RETRIED:
                            raise _refusal(answer)
                        wait = max(wait, float(answer.headers.get("retry-after", 0)))
            except self._errors:
                pass
            time.sleep(min(wait, _LONGEST_WAIT) * random.uniform(0.5, 1.0))
            wait *= 2

    def close(self) -> None:
        self._client.close()


def _without_none(query: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}


def _refusal(answer: Any) -> TrimtabError:
    if not answer.headers.get("content-type", "").startswith(MEDIA_TYPE):
        return UnreachableError(f"{answer.url} answers {answer.status_code}, and is not a Trimtab server")
    plain = {"instance": "", "errors": [], **answer.json()}
    return error_of(from_plain(Problem, plain, "the server's problem"))
