"""Filters and names mean what they say: no wildcard, quote or NUL in one finds more than it names."""

from typing import Any

from httpx import Client

from trimtab.core import Answer, Decision, Estimate, Host, Kind, Profile, Series, Workload
from trimtab.serve.http.openapi import document
from trimtab.store import Store, Tenant

STRANGE = (
    "%",
    "_",
    "t%",
    "t____",
    "*",
    "t*",
    "\\",
    "'",
    "train' OR '1'='1",
    'train" --',
    "\0",
    "train\0",
    "",
)
LISTS = ("/v1/jobs", "/v1/decisions", "/v1/profiles", "/v1/events", "/v1/recommendations")
SINGLE = ("/v1/jobs", "/v1/decisions", "/v1/profiles", "/v1/tokens", "/v1/tenants")


def fill(client: Client, store: Store) -> None:
    """One thing of each kind; every name of it is of five letters, so that five wildcards would find it."""
    client.post("/v1/jobs", json={"jobs": [{"name": "train", "command": "true"}]})
    output = {"time": Estimate(10.0, 8.0, 12.0, 0.9, "s")}
    rule = Answer("rule:x", {"nodes": 1}, output)
    for kind in ("train", "recommend"):
        store.ledger.record(
            Decision(f"id-{kind}", 1.0, kind, "train", {}, output, "rule:x", rule, None, (), "why")
        )
    work = Workload("train", Kind.TRAINING, command=("true",))
    store.profiles.save(Profile("id-p", 1.0, work, Host("c", 1, 1e9), 1, 1, "m", "exited", 0, Series()))
    store.tenants.put(Tenant("train"))


def filters(path: str) -> list[str]:
    """Those of a list that are text, as the API describes itself."""
    result: list[dict[str, Any]] = document()["paths"][path]["get"]["parameters"]
    return [item["name"] for item in result if item["in"] == "query" and "string" in str(item["schema"])]


def test_a_filter_finds_what_it_names_and_nothing_by_a_wildcard(caller, store: Store) -> None:  # type: ignore[no-untyped-def]
    client = caller()
    fill(client, store)
    tried = 0
    for path in LISTS:
        assert client.get(path).json()["items"], path
        for name in filters(path):
            for value in STRANGE:
                answer = client.get(path, params={name: value})
                tried += 1
                assert answer.status_code in (200, 404, 422), (path, name, value)
                assert answer.status_code != 200 or answer.json()["items"] == [], (path, name, value)
    assert tried >= 15 * len(STRANGE)
    assert len(client.get("/v1/jobs", params={"name": "train"}).json()["items"]) == 1


def test_a_name_in_a_path_is_no_pattern_and_what_was_tried_harms_nothing(caller, store: Store) -> None:  # type: ignore[no-untyped-def]
    client = caller()
    fill(client, store)
    before = [client.get(path).json() for path in (*LISTS, "/v1/tokens", "/v1/tenants")]
    for path in SINGLE:
        for name in (
            "%25",
            "_",
            "id-%25",
            "id-_",
            "%27",
            "x%27;DROP%20TABLE%20jobs;--",
            "%00",
            "id-%00",
            "*",
        ):
            answer = client.get(f"{path}/{name}")
            assert (answer.status_code, answer.json()["type"]) == (404, "urn:trimtab:not-found"), (path, name)
    assert [client.get(path).json() for path in (*LISTS, "/v1/tokens", "/v1/tenants")] == before
