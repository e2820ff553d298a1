"""What a tenant could work out of another: by cursors, keys, tags, counts, silence, and what is looked up."""

import re
import threading
from collections.abc import Callable

import pytest
from httpx import Client, Response

from trimtab.core import Host, Kind, Profile, Series, Workload
from trimtab.serve.http import stream as hub_module
from trimtab.store import JobRecord, JobState, Store
from trimtab.store.database import Database

ABSENT = "0f0f0f0f"


def submit(client: Client, name: str = "train", **result: object) -> Response:
    return client.post("/v1/jobs", json={"jobs": [{"name": name, "command": "true"}]}, **result)  # type: ignore[arg-type]


def id_of(answer: Response) -> str:
    return str(answer.json()["items"][0]["id"])


def alike(one: Response, other: Response, *names: str) -> bool:
    """Whether two refusals differ in nothing but the name that was asked for, and the request's own id."""

    def plain(answer: Response) -> tuple[int, str, list[str]]:
        text = re.sub(r'"instance":"[^"]*"', "", answer.text)
        for name in names:
            text = text.replace(name, "NAME")
        return answer.status_code, text, sorted(set(answer.headers) - {"content-length", "date"})

    return plain(one) == plain(other)


@pytest.fixture
def two(caller) -> tuple[Client, Client]:  # type: ignore[no-untyped-def]
    """Admins of two tenants."""
    return caller("acme", "admin"), caller("other", "admin")


def test_requests_are_not_numbered(two: tuple[Client, Client]) -> None:
    ids = [client.get("/v1/tenants").headers["x-request-id"] for client in (*two, *two)]
    assert len({id[:6] for id in ids}) == 4


def test_pages_are_as_full_and_as_many_as_if_nobody_else_were_there(
    two: tuple[Client, Client], store: Store
) -> None:
    mine, theirs = two
    own = []
    for _ in range(4):
        own.append(id_of(submit(mine)))
        submit(theirs)
    pages, calls = [], "/v1/jobs?limit=2"
    while calls:
        answer = mine.get(calls)
        pages.append([item["id"] for item in answer.json()["items"]])
        assert answer.json()["next"] in (None, *own)
        calls = answer.links.get("next", {}).get("url", "")
    assert pages == [own[:1:-1], own[1::-1]]
    events = mine.get("/v1/events?limit=100&kind=job.waiting").json()
    assert [item["subject"] for item in events["items"]] == own[::-1]
    assert events["next"] is None


def test_a_cursor_or_a_prefix_of_anothers_is_as_one_of_nobodys(
    two: tuple[Client, Client], store: Store
) -> None:
    mine, theirs = two
    foreign = id_of(submit(theirs))
    token = theirs.get("/v1/tokens").json()["items"][0]["id"]
    for path, name in (("/v1/jobs", foreign), ("/v1/tokens", token)):
        absent = ABSENT + "0f0f" if path == "/v1/tokens" else ABSENT
        there, nowhere = (mine.get(path, params={"after": item}) for item in (name, absent))
        assert there.status_code in (404, 422)
        assert alike(there, nowhere, name, absent), path
    store.jobs.submit([_record("ab11aaaa", "acme"), _record("ab22aaaa", "other")])
    assert mine.get("/v1/jobs/ab").json()["id"] == "ab11aaaa"
    assert theirs.get("/v1/jobs/ab").json()["id"] == "ab22aaaa"
    assert mine.get("/v1/jobs/ab2").status_code == 404


def _record(id: str, tenant: str) -> JobRecord:
    return JobRecord(id, 1.0, "train", tenant, "train", JobState.WAITING, {})


def test_whose_things_are_asked_for_by_name_makes_no_difference(
    two: tuple[Client, Client], store: Store
) -> None:
    mine, theirs = two
    submit(theirs)
    work = Workload("w", Kind.TRAINING, tenant="other", command=("x",))
    store.profiles.save(
        Profile("abcdef123456", 1.0, work, Host("c", 1, 1e9), 1, 1, "m", "exited", 0, Series()), "other"
    )
    for path in ("/v1/jobs", "/v1/decisions", "/v1/profiles", "/v1/events"):
        for name in ("other", "nobody", "*", "%", "oth_r", "' OR '1'='1", "other' --", "\0"):
            assert mine.get(path, params={"tenant": name}).json() == {"items": [], "next": None}, (path, name)
    calls: tuple[Callable[[str], Response], ...] = (
        lambda name: mine.post("/v1/jobs", json={"tenant": name, "jobs": [{"name": "a", "command": "b"}]}),
        lambda name: mine.post("/v1/jobs", json={"jobs": [{"name": "a", "command": "b", "tenant": name}]}),
        lambda name: mine.post("/v1/tokens", json={"name": "a", "tenant": name}),
        lambda name: mine.put(f"/v1/tenants/{name}", json={}, headers={"If-None-Match": "*"}),
        lambda name: mine.delete(f"/v1/tenants/{name}", headers={"If-Match": "*"}),
        lambda name: mine.get(f"/v1/pools/{name}"),
        lambda name: mine.get(f"/v1/fabric/{name}"),
    )
    for ask in calls:
        there, nowhere = ask("other"), ask("nobody")
        assert there.status_code == 403
        assert alike(there, nowhere, "other", "nobody"), there.text
    there, nowhere = (
        mine.post("/v1/recommendations", json={"profile": id}) for id in ("abcdef123456", "0f0f0f0f0f0f")
    )
    assert there.status_code == 404
    assert alike(there, nowhere, "abcdef123456", "0f0f0f0f0f0f")


def test_a_key_is_its_tokens_own(two: tuple[Client, Client], caller, store: Store) -> None:  # type: ignore[no-untyped-def]
    mine, theirs = two
    key = {"Idempotency-Key": "one"}
    first = submit(mine, headers=key)
    for client in (theirs, caller("acme", "admin")):
        answer = submit(client, headers=key)
        assert answer.status_code == 201
        assert "idempotent-replay" not in answer.headers
        assert id_of(answer) != id_of(first)
        assert submit(client, name="other-work", headers=key).status_code == 409
    assert submit(mine, headers=key).headers["idempotent-replay"] == "true"


def test_a_tag_of_anothers_thing_says_nothing_of_it(two: tuple[Client, Client]) -> None:
    mine, theirs = two
    foreign = id_of(submit(theirs))
    tag = theirs.get(f"/v1/jobs/{foreign}").headers["etag"]
    for headers in ({"If-None-Match": tag}, {"If-None-Match": "*"}, {"If-Match": tag}):
        there, nowhere = (mine.get(f"/v1/jobs/{id}", headers=headers) for id in (foreign, ABSENT))
        assert there.status_code == 404
        assert alike(there, nowhere, foreign, ABSENT)
        there, nowhere = (mine.post(f"/v1/jobs/{id}/cancel", headers=headers) for id in (foreign, ABSENT))
        assert there.status_code == 404
        assert alike(there, nowhere, foreign, ABSENT)


def test_as_much_is_looked_up_for_anothers_thing_as_for_none(
    two: tuple[Client, Client], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = two
    foreign, own = id_of(submit(theirs)), id_of(submit(mine))
    calls: list[object] = []
    fetch = Database.fetch

    def counted(self: Database, shape: object, *result: object) -> object:
        calls.append(shape)
        return fetch(self, shape, *result)  # type: ignore[arg-type]

    monkeypatch.setattr(Database, "fetch", counted)

    def looked_up(id: str) -> int:
        before = len(calls)
        mine.get(f"/v1/jobs/{id}")
        return len([shape for shape in calls[before:] if shape != "tokens' pulse"])  # that is by the clock

    looked_up(own)
    found = looked_up(own)
    assert 0 < found < looked_up(foreign) == looked_up(ABSENT)


def test_a_stream_shows_no_sign_of_others(
    two: tuple[Client, Client], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "HEARTBEAT", 0.4)
    mine, theirs = two
    submit(theirs, "secret")
    over = threading.Event()

    def busy() -> None:
        while not over.wait(0.05):
            store.events.append("job.ended", "secret", {}, 1.0, "other")

    others = threading.Thread(target=busy)
    others.start()
    try:
        with mine.stream("GET", "/v1/events/stream?since=0", timeout=20) as answer:
            lines = []
            for line in answer.iter_lines():
                lines.append(line)
                if lines.count(": still here") == 2:
                    break
    finally:
        over.set()
        others.join()
    assert set(lines) == {": listening", ": still here", ""}


def test_figures_and_pages_of_all_are_for_nobody_without_a_token(
    two: tuple[Client, Client], url: str
) -> None:
    with Client(base_url=url) as stranger:
        for path in ("/metrics", "/v1/fleet", "/v1/events/stream", "/v1/jobs/x", "/v1/tenants"):
            assert stranger.get(path).status_code == 401, path
        for path in ("/healthz", "/v1/health", "/v1/ready"):
            assert stranger.get(path).json() == {"status": "ok"}


def test_a_write_that_was_forbidden_is_noted_whatever_stands_in_its_path(
    two: tuple[Client, Client], caller
) -> None:  # type: ignore[no-untyped-def]
    looking = caller("acme", "viewer")
    for name in ("x", "%00", "a%00%0a", "%ff", "%ed%a0%80", "'%20OR%201=1--"):
        assert looking.post(f"/v1/jobs/{name}/cancel").status_code == 403, name
    noted = two[0].get("/v1/events?kind=audit").json()["items"]
    assert [item["detail"]["did"] for item in noted] == ["refused"] * 6
    assert two[1].get("/v1/events?kind=audit").json()["items"] == []
