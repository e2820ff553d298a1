"""Tenants cannot see or infer one another: what is another's answers as what is not there."""

import re

import pytest
from httpx import Client, Response

from trimtab.core import Host, Kind, Profile, Series, Workload
from trimtab.serve.operations import AREAS
from trimtab.store import Role, Store, Tenant

JOB = {"jobs": [{"name": "secret-name", "command": ["python", "secret.py"]}]}
ABSENT = "0f0f0f0f0f0f"


def fill(client: Client, store: Store) -> dict[str, str]:
    """Things of tenant acme, by the path that shows them."""
    job = client.post("/v1/jobs", json=JOB).json()["items"][0]["id"]
    work = Workload("secret-work", Kind.TRAINING, tenant="acme", command=("x",))
    store.profiles.save(
        Profile("abcdef123456", 1.0, work, Host("c", 1, 1e9), 1, 1, "m", "exited", 0, Series()), "acme"
    )
    store.tenants.put(Tenant("acme", guarantee=2.0))
    recorded = client.post("/v1/decisions", json={"decision": DECISION}).json()["id"]
    client.post(f"/v1/decisions/{recorded}/outcomes", json={"measured": {"time": 1.0}})
    token = store.tokens.make("secret-token", "acme", Role.VIEWER)[0].id
    store.events.append("alert.raised", "secret-alert", {"why": "secret"}, 1.0, "acme")
    store.events.append("service.started", "secret-service", {}, 1.0, "acme")
    return {
        "jobs": job,
        "profiles": "abcdef123456",
        "decisions": recorded,
        "tokens": token,
        "tenants": "acme",
    }


DECISION = {
    "id": "ignored",
    "created": 1.0,
    "kind": "recommend",
    "subject": "secret-work",
    "action": {},
    "estimates": {},
    "chosen_by": "rule:x",
    "model": None,
    "alternatives": [],
    "reason": "secret",
    "rule": {"who": "rule:x", "action": {}, "estimates": {}},
}


@pytest.fixture
def reading() -> list[str]:
    """Every path that can be read."""
    operations = (operation for area in AREAS.values() for operation in area.operations.values())
    return [operation.path for operation in operations if operation.method == "GET"]


def same(one: Response, other: Response, names: tuple[str, str]) -> bool:
    """Whether two answers tell nothing of which was asked for what."""

    def plain(answer: Response, name: str) -> str:
        return re.sub(r'"instance":"[^"]*"', "", answer.text).replace(name, "NAME")

    return (one.status_code, plain(one, names[0])) == (other.status_code, plain(other, names[1]))


def test_what_is_another_tenants_is_as_what_is_not_there(caller, store: Store, reading: list[str]) -> None:  # type: ignore[no-untyped-def]
    mine, theirs = caller("acme", "admin"), caller("other", "admin")
    ids = fill(mine, store)
    looked = 0
    for path in reading:
        area = path.split("/")[2]
        if "{" not in path:
            answer = theirs.get(path)
            assert answer.status_code in (200, 403), path
            assert "secret" not in answer.text, path
            continue
        if area not in ids:
            continue
        looked += 1
        absent = ABSENT[: len(ids[area])]
        blank = re.compile(r"\{\w+\}")
        there, nowhere = (theirs.get(blank.sub(name, path)) for name in (ids[area], absent))
        assert same(there, nowhere, (ids[area], absent)), (path, there.text, nowhere.text)
        assert there.status_code == 404
        assert mine.get(blank.sub(ids[area], path)).status_code == 200, path
    assert looked == 7


def test_what_is_another_tenants_cannot_be_changed_or_told_from_nothing(caller, store: Store) -> None:  # type: ignore[no-untyped-def]
    mine, theirs = caller("acme", "admin"), caller("other", "admin")
    ids = fill(mine, store)
    calls = [
        ("POST", "/v1/jobs/{}/cancel", "jobs", None),
        ("POST", "/v1/decisions/{}/outcomes", "decisions", {"measured": {"time": 1.0}}),
        ("DELETE", "/v1/tokens/{}", "tokens", None),
    ]
    for method, path, area, body in calls:
        absent = ABSENT[: len(ids[area])]
        there, nowhere = (
            theirs.request(method, path.format(name), json=body) for name in (ids[area], absent)
        )
        assert same(there, nowhere, (ids[area], absent)), (path, there.text, nowhere.text)
        assert there.status_code == 404
    assert store.jobs.get(ids["jobs"]).state == "waiting"


def test_an_id_cannot_be_tried_out_by_writing_under_it(caller, store: Store) -> None:  # type: ignore[no-untyped-def]
    mine, theirs = caller("acme", "user"), caller("other", "user")
    taken = mine.post("/v1/decisions", json={"decision": DECISION}).json()["id"]
    for id in (taken, ABSENT):
        answer = theirs.post("/v1/decisions", json={"decision": {**DECISION, "id": id}})
        assert answer.status_code == 201
        assert answer.json()["id"] not in (taken, ABSENT)


def test_the_audit_log_of_a_tenant_is_its_admins_alone(caller, store: Store) -> None:  # type: ignore[no-untyped-def]
    mine, theirs, looking = caller("acme", "admin"), caller("other", "admin"), caller("acme", "viewer")
    fill(mine, store)
    assert {e["detail"]["did"] for e in mine.get("/v1/events?kind=audit").json()["items"]} == {
        "jobs.submit",
        "decisions.record",
        "decisions.outcome",
    }
    assert theirs.get("/v1/events?kind=audit").json()["items"] == []
    assert looking.get("/v1/events?kind=audit").json()["items"] == []
