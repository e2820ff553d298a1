"""Requests to a server: sent again when an answer is lost, and refused with the server's own sentence."""

import json
import random
import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.core import BadInputError, MissingDependencyError, TrimtabError, from_plain
from trimtab.serve.encoding import encoded
from trimtab.serve.problems import MEDIA_TYPE, Problem, error_of

_TRIES = 5
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0  # s
_AGAIN = (429, 502, 503, 504)
_TIMEOUT, _CONNECT = 60.0, 10.0  # s
_STREAM = "/v1/events/stream"


class UnreachableError(TrimtabError):
    """No server answers there, or none that is Trimtab's."""


class Connection:
    """To the server at a URL, with a token. A POST carries a key, so that sending it again does no harm."""

    def __init__(self, url: str, token: str = "", verify: Any = True) -> None:
        try:
            import httpx
        except ImportError:
            raise MissingDependencyError(
                "asking a server needs the httpx package; pip install 'trimtab[serve]'"
            ) from None
        if not url.startswith(("http://", "https://")):
            raise BadInputError(
                f'"{url:.80}" is no server\'s URL; write it like https://trimtab.example:7430'
            )
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._errors = httpx.HTTPError
        patience = httpx.Timeout(_TIMEOUT, connect=_CONNECT)
        self._client = httpx.Client(base_url=url, headers=headers, timeout=patience, verify=verify)
        self._url = url

    def get(self, path: str, **query: Any) -> Any:
        """What a path shows; parts of the query that are None are left out."""
        return self._asked("GET", path, params=_given(query)).json()

    def pages(self, path: str, limit: int, after: str | None, **query: Any) -> tuple[list[Any], str | None]:
        """At most `limit` items of a list, over as many pages as it takes, and where it goes on."""
        items: list[Any] = []
        while True:
            page = self.get(path, limit=min(limit - len(items), 100), after=after, **query)
            items += page["items"]
            after = page["next"]
            if after is None or len(items) >= limit:
                return items, after

    def tagged(self, path: str) -> tuple[Any, str]:
        """The same with its tag, for who wants to change it."""
        answer = self._asked("GET", path)
        return answer.json(), answer.headers["etag"]

    def post(self, path: str, body: Any, key: str | None = None) -> Any:
        """Make something, once; with a `key` of its own, once however often it is asked for within a day."""
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        return self._asked("POST", path, headers, body=body).json()

    def put(self, path: str, body: Any, headers: Mapping[str, str]) -> Any:
        """Change something."""
        return self._asked("PUT", path, headers, body=body).json()

    def delete(self, path: str, headers: Mapping[str, str] | None = None) -> Any:
        """Remove something."""
        return self._asked("DELETE", path, headers).json()

    def events(self, since: int | None, kinds: tuple[str, ...]) -> Iterator[Any]:
        """Events as they happen, from one id on; goes on by itself when the connection breaks."""
        while True:
            query: dict[str, Any] = {"kind": list(kinds), **({} if since is None else {"since": since})}
            try:
                with self._client.stream("GET", _STREAM, params=query, timeout=_TIMEOUT) as answer:
                    if answer.status_code != 200:
                        answer.read()
                        raise _refusal(answer)
                    for line in answer.iter_lines():
                        name, _, value = line.partition(": ")
                        if name == "data" and value.startswith("{"):
                            event = json.loads(value)
                            since = event["id"]
                            yield event
            except self._errors:
                time.sleep(_FIRST_WAIT)

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def _asked(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> Any:
        content = None if body is None else encoded(body)
        told = {**(headers or {}), **({"Content-Type": "application/json"} if content is not None else {})}
        wait, why = _FIRST_WAIT, ""
        for left in reversed(range(_TRIES)):
            try:
                answer = self._client.request(method, path, headers=told, params=params, content=content)
            except self._errors as error:
                why = str(error).lower() or type(error).__name__
            else:
                if answer.is_success:
                    return answer
                if answer.status_code not in _AGAIN or not left:
                    raise _refusal(answer)
                wait = max(wait, float(answer.headers.get("retry-after", 0)))
            if left:
                time.sleep(min(wait, _LONGEST_WAIT) * random.uniform(0.5, 1.0))
                wait *= 2
        raise UnreachableError(f"no server answers at {self._url}: {why}; is trimtab up running there?")


def _given(query: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}


def _refusal(answer: Any) -> TrimtabError:
    if not answer.headers.get("content-type", "").startswith(MEDIA_TYPE):
        return UnreachableError(f"{answer.url} answers {answer.status_code}, and not as Trimtab does")
    told = {"instance": "", "errors": [], **answer.json()}
    return error_of(from_plain(Problem, told, "the server's problem"))
