"""What is sent back: JSON that is already encoded, its tag, and where a list goes on."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

import orjson

from trimtab.core import TrimtabError, to_plain
from trimtab.serve.encoding import encoded
from trimtab.serve.problems import MEDIA_TYPE, HttpError, Problem, plain_problem, problem_of
from trimtab.store import Page

Headers = tuple[tuple[bytes, bytes], ...]
_JSON = (b"content-type", b"application/json")
_PROBLEM = (b"content-type", MEDIA_TYPE.encode())


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, a body and headers. `kept` is what to repeat for the same key, if that is not the body."""

    status: int
    body: bytes
    headers: Headers = (_JSON,)
    kept: bytes | None = None


def json_answer(value: Any, status: int = 200, tagged: bool = False) -> Answer:
    """Plain data, or what of the vocabulary can be made plain."""
    body = encoded(value)
    return Answer(status, body, (_JSON, (b"etag", tag(body))) if tagged else (_JSON,))


def text_answer(text: str, status: int = 200) -> Answer:
    """JSON as the store keeps it, with its tag."""
    body = text.encode()
    return Answer(status, body, (_JSON, (b"etag", tag(body))))


def page_answer(scope: Any, page: Page[str]) -> Answer:
    """A page of JSON texts, and a link to the one that follows."""
    following = b"null" if page.next is None else orjson.dumps(page.next)
    body = b'{"items":[' + ",".join(page.items).encode() + b'],"next":' + following + b"}"
    return Answer(200, body, (_JSON,) if page.next is None else (_JSON, _link(scope, page.next)))


def plain_page(scope: Any, page: Page[Any]) -> Answer:
    """The same of things that are not text yet."""
    return page_answer(scope, Page(tuple(encoded(each).decode() for each in page.items), page.next))


def problem_answer(problem: Problem, headers: Iterable[tuple[str, str]] = ()) -> Answer:
    """An error."""
    told = {name: value for name, value in to_plain(problem).items() if value not in ("", [])}
    more = tuple((name.lower().encode(), value.encode()) for name, value in headers)
    return Answer(problem.status, orjson.dumps(told), (_PROBLEM, *more))


def failed(error: TrimtabError, scope: Any) -> Answer:
    """The answer that says what went wrong; why one of ours did is left for the log."""
    headers = error.headers if isinstance(error, HttpError) else ()
    answer = problem_answer(problem_of(error, scope.get("trimtab.id", "")), headers)
    if answer.status == 401:
        return Answer(401, answer.body, (*answer.headers, (b"www-authenticate", b"Bearer")))
    if answer.status >= 500:
        scope["trimtab.why"] = str(error)
    return answer


def crashed(id: str) -> Answer:
    """The answer to a request that met an error of ours, which the log has under the request's id."""
    return problem_answer(plain_problem(500, f"this is an error of ours; the log has it as {id}", id))


async def reply(send: Any, answer: Answer) -> None:
    """Send an answer."""
    headers = [*answer.headers, (b"content-length", str(len(answer.body)).encode())]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def tag(body: bytes) -> bytes:
    """The strong tag of a body."""
    return b'"' + hashlib.blake2b(body, digest_size=12).hexdigest().encode() + b'"'


def _link(scope: Any, following: str) -> tuple[bytes, bytes]:
    asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    query = urlencode([*((name, value) for name, value in asked if name != "after"), ("after", following)])
    return b"link", f'<{scope["path"]}?{query}>; rel="next"'.encode()
