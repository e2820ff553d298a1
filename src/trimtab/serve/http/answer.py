"""Answers: a status, a body that is already encoded, and headers; and how they are sent."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

import orjson

from trimtab.core import TrimtabError, to_plain
from trimtab.serve.problems import (
    MEDIA_TYPE,
    HttpError,
    Problem,
    encoded,
    entity_tag,
    plain_problem,
    problem_of,
)
from trimtab.store import Page

Headers = tuple[tuple[bytes, bytes], ...]
JSON_TYPE = (b"content-type", b"application/json")
_PROBLEM_TYPE = (b"content-type", MEDIA_TYPE.encode())


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. `kept` is the body for repetitions of the request's key, where that is not `body`."""

    status: int
    body: bytes
    headers: Headers = (JSON_TYPE,)
    kept: bytes | None = None


def json_answer(body: bytes, status: int = 200, tagged: bool = False) -> Answer:
    """Answer with JSON, and its ETag where it is `tagged`."""
    return Answer(status, body, (JSON_TYPE, (b"etag", entity_tag(body))) if tagged else (JSON_TYPE,))


def page_answer(path: str, query: bytes, page: Page[Any], texts: bool) -> Answer:
    """A page of a list, with a Link header to the next one; its items are JSON `texts`, or objects."""
    items = page.items if texts else [encoded(each).decode() for each in page.items]
    following = b"null" if page.next is None else orjson.dumps(page.next)
    body = b'{"items":[' + ",".join(items).encode() + b'],"next":' + following + b"}"
    if page.next is None:
        return Answer(200, body)
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    again = urlencode([*((name, value) for name, value in pairs if name != "after"), ("after", page.next)])
    return Answer(200, body, (JSON_TYPE, (b"link", f'<{path}?{again}>; rel="next"'.encode())))


def problem_answer(problem: Problem, headers: Iterable[tuple[str, str]] = ()) -> Answer:
    """Answer with problem+json."""
    plain = {name: value for name, value in to_plain(problem).items() if value not in ("", [])}
    more = tuple((name.lower().encode(), value.encode()) for name, value in headers)
    return Answer(problem.status, orjson.dumps(plain), (_PROBLEM_TYPE, *more))


def error_answer(error: TrimtabError, request_id: str) -> Answer:
    """Answer to a request that failed with an error of Trimtab's."""
    headers = error.headers if isinstance(error, HttpError) else ()
    answer = problem_answer(problem_of(error, request_id), headers)
    if answer.status == 401:
        return Answer(401, answer.body, (*answer.headers, (b"www-authenticate", b"Bearer")))
    return answer


def crash_answer(request_id: str) -> Answer:
    """Answer to a request that met a bug, which the log has under the request's id."""
    detail = f"this is an error of ours; the log has it as {request_id}"
    return problem_answer(plain_problem(500, detail, request_id))


async def reply(send: Any, answer: Answer) -> None:
    """Send an answer."""
    headers = [*answer.headers, (b"content-length", str(len(answer.body)).encode())]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
