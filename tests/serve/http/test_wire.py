"""Bytes that no honest client sends: two lengths, heads without end, JSON without a floor."""

import socket

from httpx import Client

from trimtab.serve.processes.server import LARGEST_HEAD
from trimtab.store import Store

AS_JSON = {"Content-Type": "application/json"}
JOB = b'{"jobs": [{"name": "smuggled", "command": "true"}]}'
HEAD = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
SECOND = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = 8 << 20
"""Bytes: more than any buffer between two programs takes in, so that somebody has to read them."""


def output(url: str, sent: bytes) -> bytes:
    """What the server answers until it hangs up; it may do so before all is sent."""
    host, _, port = url.partition("://")[2].partition(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        try:
            connection.sendall(sent)
            while piece := connection.recv(65536):
                answer += piece
        except ConnectionError:
            pass
    return answer


DOUBTFUL = (
    b"Content-Length: 51\r\nContent-Length: 0\r\n\r\n" + JOB + SECOND,
    b"Content-Length: 51\r\n" + CHUNKED + b"0\r\n\r\n" + SECOND,
    CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 51\r\n\r\n") + JOB,
    b"Transfer-Encoding: chunked, identity\r\n\r\n" + JOB,
    b"Transfer-Encoding: xchunked\r\n\r\n" + JOB,
    b"Content-Length: +51\r\n\r\n" + JOB,
    b"Content-Length: -1\r\n\r\n" + JOB,
    b"Content-Length : 51\r\n\r\n" + JOB,
    CHUNKED + b"-1\r\n" + JOB,
)


def test_a_request_whose_end_is_in_doubt_is_refused_once_and_nothing_follows_it(
    url: str, store: Store
) -> None:
    assert len(JOB) == 51
    for rest in DOUBTFUL:
        answer = output(url, HEAD + rest)
        assert answer.startswith(b"HTTP/1.1 400 "), rest
        assert answer.count(b"HTTP/1.1 ") == 1, rest
    assert store.jobs.list() == ()


def test_a_repeated_equal_length_and_a_folded_header_are_one_request(url: str, store: Store) -> None:
    for rest in (
        b"Content-Length: 51\r\nContent-Length: 51\r\n",
        b"Content-Length: 51\r\nX-Folded: a\r\n b\r\n",
    ):
        answer = output(url, HEAD + b"Connection: close\r\n" + rest + b"\r\n" + JOB)
        assert answer.startswith(b"HTTP/1.1 201 "), rest
        assert answer.count(b"HTTP/1.1 ") == 1, rest
    assert len(store.jobs.list()) == 2


def test_what_goes_on_without_end_beside_a_body_is_cut_off(url: str) -> None:
    get = b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    for begin, filler, end in (
        (get + b"X-Long: ", b"a", b"\r\n\r\n"),
        (get, b"A: a\r\n", b"\r\n"),
        (b"GET /v1/jobs?", b"a", get[12:] + b"\r\n"),
        (HEAD + CHUNKED + b"2\r\n{}\r\n0\r\nX-Late: ", b"a", b"\r\n\r\n"),
        (HEAD + CHUNKED + b"2;x=", b"a", b"\r\n{}\r\n0\r\n\r\n"),
        (HEAD + CHUNKED + b"fffffffffffffffff\r\n", b"a", b"\r\n0\r\n\r\n"),
        (b"", b"\r\n", get + b"\r\n"),
    ):
        answer = output(url, begin + filler * (ENDLESS // len(filler)) + end)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 ")), begin


def test_a_body_may_be_longer_than_a_head_whole_or_in_chunks_and_a_cookie_may_be_long(serve) -> None:  # type: ignore[no-untyped-def]
    url = serve(body_limit=8 * LARGEST_HEAD)
    body = b" " * (4 * LARGEST_HEAD) + JOB
    pieces = [body[place : place + 1024] for place in range(0, len(body), 1024)]
    with Client(base_url=url) as client:
        assert client.post("/v1/jobs", content=body, headers=AS_JSON).status_code == 201
        assert client.post("/v1/jobs", content=iter(pieces), headers=AS_JSON).status_code == 201
        assert client.get("/v1/jobs", headers={"Cookie": "a=" + "b" * (LARGEST_HEAD // 2)}).status_code == 200


def nested(opening: str, closing: str, depth: int = 10_000) -> bytes:
    """A job whose data are that deep."""
    inside = opening * depth + closing * depth
    return b'{"jobs": [{"name": "deep", "command": "true", "data": %s}]}' % inside.encode()


NO_JSON = (
    b"[" * 10_000 + b"]" * 10_000,
    nested("[", "]"),
    nested('{"a":', "}").replace(b'"a":}', b'"a":1}'),
    JOB.replace(b"smuggled", b"\xff\xfe"),
    JOB.replace(b"smuggled", b"\xed\xa0\x80"),
    JOB.replace(b"smuggled", b"\\ud800"),
    JOB.decode().encode("utf-16"),
    b"\xef\xbb\xbf" + JOB,
    JOB.replace(b'"true"', b'"true", "retries": 1' + b"0" * 5000),
    JOB[:-1],
    JOB + b"{}",
)


def test_a_body_that_is_no_json_is_a_problem_in_a_sentence(url: str, store: Store) -> None:
    with Client(base_url=url) as client:
        for body in NO_JSON:
            answer = client.post("/v1/jobs", content=body, headers=AS_JSON)
            assert (answer.status_code, answer.json()["type"]) == (400, "urn:trimtab:not-http"), body[:60]
    assert store.jobs.list() == ()


NUMBERS = ("1e400", "-1e400", "NaN", "Infinity", "1" + "0" * 4000)
FIELDS = ("work", "budget", "deadline", "retries", "workers", "resources.memory", "speeds.a100", "data.size")
ELSEWHERE = (
    ("/v1/tokens", '{"name": "a", "lifetime": 1e400}'),
    ("/v1/decisions/d/outcomes", '{"measured": {"time": 1e400}}'),
    ("/v1/recommendations", '{"budget": 1e400}'),
    ("/v1/recommendations", '{"deadline": 1e400}'),
)


def test_numbers_beyond_all_numbers_are_refused_briefly_and_kept_nowhere(url: str, store: Store) -> None:
    calls = list(ELSEWHERE)
    for field in FIELDS:
        name, _, below = field.partition(".")
        for number in NUMBERS:
            value = f'{{"{below}": {number}}}' if below else number
            calls.append(("/v1/jobs", f'{{"jobs": [{{"name": "a", "command": "b", "{name}": {value}}}]}}'))
    with Client(base_url=url) as client:
        for path, body in calls:
            answer = client.post(path, content=body.encode(), headers=AS_JSON)
            assert answer.status_code in (400, 422), (path, body[:100], answer.text)
            assert len(answer.json()["detail"]) < 400, body[:100]
    assert store.jobs.list() == ()
