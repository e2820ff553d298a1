"""Requests and answers: pages, tags, keys, problems, and text that means something elsewhere."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from httpx import Client

from trimtab.core import Answer, Decision, Estimate, to_plain
from trimtab.store import Store

JOB = {"jobs": [{"name": "train", "command": ["python", "train.py"]}]}
NASTY = """<script>alert(1)</script>'; DROP TABLE jobs; --" onload=x ${7*7} {{7*7}} ../../etc %00 \u202e 🚢"""


def decided(id: str, reason: str = "it is cheaper") -> Decision:
    output = {"time": Estimate(10.0, 8.0, float("inf"), 0.9, "s")}
    rule = Answer("rule:analytic", {"nodes": 1}, output)
    return Decision(id, 1000.0, "recommend", "resnet", {"nodes": 1}, output, "rule:x", rule, None, (), reason)


@pytest.fixture
def admin(caller) -> Client:  # type: ignore[no-untyped-def]
    return caller()


def test_pages_together_are_the_list_and_say_where_they_go_on(admin: Client, store: Store) -> None:
    for number in range(7):
        store.ledger.record(replace(decided(f"d{number}"), created=float(number)))
    observed, calls = [], "/v1/decisions?limit=3&kind=recommend"
    while calls:
        answer = admin.get(calls)
        assert answer.status_code == 200
        observed += [item["id"] for item in answer.json()["items"]]
        following = answer.links.get("next", {}).get("url", "")
        assert bool(following) == (answer.json()["next"] is not None)
        calls = following
    assert observed == ["d6", "d5", "d4", "d3", "d2", "d1", "d0"]


@pytest.mark.parametrize("after", ["nonsense", "", "\x01", "d0' OR 1=1"])
def test_a_list_that_goes_on_from_nowhere_is_a_problem(admin: Client, after: str) -> None:
    for path in ("/v1/decisions", "/v1/jobs", "/v1/events", "/v1/profiles", "/v1/catalog/offers"):
        answer = admin.get(path, params={"after": after})
        assert answer.status_code in (404, 422), path
        assert answer.headers["content-type"] == "application/problem+json"


def test_filters_find_what_they_say_and_misspelt_ones_are_refused(admin: Client) -> None:
    made = admin.post("/v1/jobs", json=JOB).json()["items"][0]
    assert [j["id"] for j in admin.get("/v1/jobs?state=waiting&name=train").json()["items"]] == [made["id"]]
    assert admin.get("/v1/jobs?state=running").json()["items"] == []
    assert admin.get("/v1/jobs?tenant=nobody").json()["items"] == []
    refused = admin.get("/v1/jobs?staet=waiting")
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["where"] == "query.staet"


def test_a_tag_saves_the_body_and_guards_a_change(admin: Client) -> None:
    made = admin.put("/v1/tenants/a", json={"guarantee": 2.0}, headers={"If-None-Match": "*"})
    assert made.status_code == 200
    first = admin.get("/v1/tenants/a")
    assert first.headers["etag"] == made.headers["etag"]
    assert admin.get("/v1/tenants/a", headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    assert admin.put("/v1/tenants/a", json={}).status_code == 428
    assert admin.put("/v1/tenants/b", json={}).status_code == 200  # there was none to overwrite
    assert admin.put("/v1/tenants/a", json={}, headers={"If-None-Match": "*"}).status_code == 412
    stale = {"If-Match": first.headers["etag"]}
    assert admin.put("/v1/tenants/a", json={"guarantee": 3.0}, headers=stale).status_code == 200
    assert admin.put("/v1/tenants/a", json={"guarantee": 4.0}, headers=stale).status_code == 412
    assert admin.get("/v1/tenants/a").json()["guarantee"] == 3.0
    assert admin.delete("/v1/tenants/a", headers=stale).status_code == 412
    now = {"If-Match": admin.get("/v1/tenants/a").headers["etag"]}
    assert admin.delete("/v1/tenants/a", headers=now).status_code == 200


def test_a_job_is_cancelled_only_as_it_was_seen_where_that_is_said(admin: Client, store: Store) -> None:
    id = admin.post("/v1/jobs", json=JOB).json()["items"][0]["id"]
    observed = {"If-Match": admin.get(f"/v1/jobs/{id}").headers["etag"]}
    store.jobs.note({id: 5.0}, {})
    assert admin.post(f"/v1/jobs/{id}/cancel", headers=observed).status_code == 412
    observed = {"If-Match": admin.get(f"/v1/jobs/{id}").headers["etag"]}
    assert admin.post(f"/v1/jobs/{id}/cancel", headers=observed).json()["state"] == "cancelled"
    assert admin.post(f"/v1/jobs/{id}/cancel").status_code == 409


def test_of_two_who_change_the_same_state_one_succeeds(admin: Client) -> None:
    admin.put("/v1/tenants/a", json={}, headers={"If-None-Match": "*"})
    observed = {"If-Match": admin.get("/v1/tenants/a").headers["etag"]}

    def change(weight: int) -> int:
        return admin.put("/v1/tenants/a", json={"weight": float(weight)}, headers=observed).status_code

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(change, range(2, 10))) == [200] + [412] * 7


def test_a_key_does_its_work_once_however_often_and_together_it_is_sent(admin: Client, store: Store) -> None:
    def post(_: int) -> tuple[int, str]:
        answer = admin.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "one"})
        return answer.status_code, answer.json()["items"][0]["id"]

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(post, range(16)))) == 1
    assert len(store.jobs.list()) == 1
    other = admin.post(
        "/v1/jobs", json={"jobs": [{"name": "b", "command": "x"}]}, headers={"Idempotency-Key": "one"}
    )
    assert (other.status_code, other.json()["type"]) == (409, "urn:trimtab:reused-key")


def test_a_key_that_failed_is_free_again(admin: Client) -> None:
    key = {"Idempotency-Key": "retry"}
    assert (
        admin.post("/v1/jobs", json={"jobs": [{"name": "a b", "command": "x"}]}, headers=key).status_code
        == 422
    )
    assert admin.post("/v1/jobs", json=JOB, headers=key).status_code == 201


def test_a_tokens_secret_is_shown_once_and_is_nowhere_in_the_store(admin: Client, store: Store) -> None:
    calls = {"name": "ci", "role": "user", "tenant": "a"}
    first = admin.post("/v1/tokens", json=calls, headers={"Idempotency-Key": "t"})
    assert first.status_code == 201
    again = admin.post("/v1/tokens", json=calls, headers={"Idempotency-Key": "t"})
    assert again.json() == {**first.json(), "text": None}
    secret = first.json()["text"].rpartition("_")[2].encode()
    files = [path.read_bytes() for path in Path(store.name).parent.glob("trimtab.sqlite*")]
    assert files
    assert not any(secret in content for content in files)


def test_every_error_is_a_problem_in_a_sentence(admin: Client, url: str) -> None:
    calls = [
        (admin.get("/v1/nothing"), 404),
        (admin.get("/v1/jobs/none"), 404),
        (admin.get("/v1/jobs/../../etc/passwd"), 404),
        (admin.get("/v1/jobs/%2e%2e%2fetc%2fpasswd/log"), 404),
        (admin.delete("/v1/jobs"), 405),
        (admin.post("/v1/jobs", content=b"x", headers={"Content-Type": "text/plain"}), 415),
        (admin.post("/v1/jobs", content=b"{", headers={"Content-Type": "application/json"}), 400),
        (admin.post("/v1/jobs", json={"jobs": []}), 422),
        (admin.post("/v1/jobs", json={"jobs": [{"name": "a", "command": "b\0c"}]}), 422),
        (admin.get("/v1/jobs?limit=1000000"), 422),
        (Client().get(f"{url}/v1/jobs"), 401),
        (Client().get(f"{url}/v1/jobs", headers={"Authorization": "Bearer tt_0_x"}), 401),
    ]
    for answer, status in calls:
        assert answer.status_code == status, answer.request.url
        assert answer.headers["content-type"] == "application/problem+json"
        result = answer.json()
        assert result["status"] == status
        assert result["detail"]
        assert "Traceback" not in answer.text
    assert calls[4][0].headers["allow"] == "GET, HEAD, POST"
    assert calls[-1][0].headers["www-authenticate"] == "Bearer"


def test_an_error_of_ours_says_an_id_and_nothing_else(
    admin: Client, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*result: object) -> None:
        raise RuntimeError("SELECT secret FROM inside")

    monkeypatch.setattr(store.jobs, "page_text", broken)
    answer = admin.get("/v1/jobs")
    assert answer.status_code == 500
    assert "SELECT" not in answer.text
    assert answer.json()["instance"] in caplog.text


def test_text_is_text_wherever_it_is_written(admin: Client) -> None:
    made = decided("d1", NASTY)
    sent = admin.post("/v1/decisions", content=b'{"decision": %s}' % plain(made), headers=AS_JSON)
    assert sent.status_code == 201, sent.text
    kept = admin.get("/v1/decisions/d1")
    assert kept.json()["reason"] == NASTY
    assert kept.json()["estimates"]["time"]["high"] == float("inf")
    noted = admin.post("/v1/decisions/d1/outcomes", json={"measured": {"time": 11.0}, "note": NASTY})
    assert noted.status_code == 201
    assert admin.get("/v1/decisions/d1/outcomes").json()["items"][0]["note"] == NASTY
    for name in ("kind", "subject"):
        assert admin.get("/v1/decisions", params={name: NASTY}).json()["items"] == []
    token = admin.post("/v1/tokens", json={"name": NASTY.replace("\u202e", "")})
    assert token.json()["name"] == NASTY.replace("\u202e", "")
    assert kept.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in kept.headers["content-security-policy"]


AS_JSON = {"Content-Type": "application/json"}


def plain(value: object) -> bytes:
    return json.dumps(to_plain(value)).replace("Infinity", "1e999").encode()


def test_who_was_right_is_counted_by_kind(admin: Client, store: Store) -> None:
    store.ledger.record(decided("d1"))
    admin.post("/v1/decisions/d1/outcomes", json={"measured": {"time": 11.0}})
    found = admin.get("/v1/decisions/calibration").json()["items"]
    assert found == [
        {
            "kind": "recommend",
            "quantity": "time",
            "outcomes": 1,
            "held": 1,
            "promised": 0.9,
            "duels": 0,
            "model_wins": 0,
            "rule_wins": 0,
        }
    ]


def test_what_a_page_of_somebody_else_asks_without_a_token_is_refused(url: str) -> None:
    with Client(base_url=url) as here:
        assert here.get("/v1/jobs").status_code == 200
        for headers in (
            {"Host": "evil.example"},
            {"Origin": "http://evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            assert here.get("/v1/jobs", headers=headers).status_code == 403


def test_figures_are_for_who_may_see_all_tenants(caller, admin: Client) -> None:  # type: ignore[no-untyped-def]
    assert 'trimtab_requests_total{method="GET"' in admin.get("/metrics").text + admin.get("/metrics").text
    assert caller("a", "admin").get("/metrics").status_code == 403


def test_the_log_has_neither_tokens_nor_queries(
    admin: Client, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="trimtab.serve")
    text = admin.headers["authorization"].removeprefix("Bearer ")
    admin.get("/v1/jobs", params={"name": "a-secret"})
    admin.get("/v1/jobs", params={"token": text})
    Client().get(f"{url}/v1/jobs", headers={"Authorization": f"Bearer {text[:-1]}"})
    admin.post("/v1/tokens", json={"name": "ci"})
    assert caplog.text.count("/v1/jobs") == 3
    assert "a-secret" not in caplog.text
    assert text.rpartition("_")[2][:10] not in caplog.text
