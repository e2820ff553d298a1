"""Who comes in, with which token, and what they see of others."""

import urllib.error
import urllib.request
from typing import Any

import pytest
from dashboard_house import faults, until
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from trimtab.serve.access import LOCAL
from trimtab.serve.operations import Backend, Service
from trimtab.store import Role


@pytest.fixture(scope="module")
def tokens(empty_house: Any) -> dict[str, tuple[str, str]]:
    """Ids and texts of tokens, by who has them; a job of each tenant."""
    service = Service(Backend(empty_house.store), LOCAL)
    made = {
        name: service.tokens.make(name, role, tenant)
        for name, role, tenant in (
            ("red", Role.USER, "red"),
            ("blue", Role.USER, "blue"),
            ("eye", Role.VIEWER, "red"),
        )
    }
    until(lambda: service.fleet.now().there, "the scheduler")
    none = {"resources": {"gpus": 0, "cpus": 0.1}, "command": "true"}
    service.jobs.submit([{"name": "red-job", "tenant": "red", **none}])
    service.jobs.submit([{"name": "blue-job", "tenant": "blue", **none}])
    return {name: (token.id, text) for name, (token, text) in made.items()}


def sign_in(house: Any, page: Any, text: str, path: str = "/jobs") -> None:
    page.goto(house.url + path)
    page.get_by_label("Token").fill(text)
    page.get_by_role("button", name="Sign in").click()


def test_a_token_opens_the_page_that_was_asked_for_and_ends_with_its_session(
    empty_house: Any, tokens: dict[str, tuple[str, str]]
) -> None:
    id, text = tokens["blue"]
    with empty_house.visitor() as page:
        sign_in(empty_house, page, "tt_wrong")
        page.get_by_role("alert").wait_for()
        assert faults(page) == []
        page.get_by_label("Token").fill(text)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("link", name="blue-job").wait_for()
        assert page.url == f"{empty_house.url}/jobs"
        assert page.get_by_text("blue", exact=True).count() >= 1
        (cookie,) = (item for item in page.context.cookies() if item["name"] == "trimtab_session")
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["expires"]) == (True, "Strict", -1)
        assert text not in cookie["value"]
        page.wait_for_function("window.did_handshake")
        Service(Backend(empty_house.store), LOCAL).tokens.revoke(id)
        page.get_by_role("button", name="Sign in").wait_for()
    assert empty_house.problems == []


def test_a_tenant_sees_nothing_of_another_and_signs_out(
    empty_house: Any, tokens: dict[str, tuple[str, str]]
) -> None:
    jobs = empty_house.store.jobs
    id = next(item.id for item in jobs.list(10) if item.name == "blue-job")
    decision = until(lambda: jobs.get(id).run.decision, "the decision that started it")
    with empty_house.visitor() as page:
        sign_in(empty_house, page, tokens["red"][1])
        page.get_by_role("link", name="red-job").wait_for()
        assert page.get_by_text("blue-job").count() == 0
        assert page.get_by_role("link", name="Fabric").count() == 0
        for place, others in (("jobs", id), ("decisions", decision)):
            page.goto(f"{empty_house.url}/{place}/{others}")
            output = page.get_by_role("alert").inner_text().replace(others, "ID")
            page.goto(f"{empty_house.url}/{place}/nosuchid")
            assert output == page.get_by_role("alert").inner_text().replace("nosuchid", "ID")
        for place in ("fabric", "resize"):
            page.goto(f"{empty_house.url}/{place}")
            assert "all tenants" in page.get_by_role("alert").inner_text()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_label("Token").wait_for()
        page.goto(f"{empty_house.url}/jobs")
        page.get_by_label("Token").wait_for()
    assert empty_house.problems == []


def test_a_viewer_finds_nothing_to_change(empty_house: Any, tokens: dict[str, tuple[str, str]]) -> None:
    record = next(item for item in empty_house.store.jobs.list(10) if item.name == "red-job")
    with empty_house.visitor() as page:
        sign_in(empty_house, page, tokens["eye"][1], f"/jobs/{record.id}")
        page.get_by_role("heading", name="Log").wait_for()
        assert not page.get_by_role("button", name="Cancel this job").is_visible()
        page.goto(f"{empty_house.url}/recommend")
        page.get_by_text("This token may look").wait_for()
        assert page.get_by_role("button", name="Recommend").count() == 0
    assert empty_house.problems == []


def test_an_empty_store_says_how_to_fill_it(empty_house: Any, tokens: dict[str, tuple[str, str]]) -> None:
    with empty_house.visitor() as page:
        sign_in(empty_house, page, tokens["red"][1], "/recommend")
        page.get_by_text("trimtab profile -- python train.py").wait_for()
        page.goto(f"{empty_house.url}/decisions")
        page.get_by_text("trimtab demo").or_(
            page.get_by_text("No decision has an outcome yet")
        ).first.wait_for()


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/sign-in", {"Origin": "http://elsewhere.example"}),
        ("/sign-in", {}),
        ("/sign-out", {"Origin": "null"}),
    ],
)
def test_what_another_sites_page_posts_is_not_done(
    empty_house: Any, path: str, headers: dict[str, str]
) -> None:
    request = urllib.request.Request(f"{empty_house.url}{path}", b"token=x", headers, method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    assert refused.value.code == 403


def test_no_page_opens_without_a_token_and_none_runs_foreign_scripts(
    empty_house: Any, tokens: dict[str, tuple[str, str]]
) -> None:
    with urllib.request.urlopen(f"{empty_house.url}/decisions", timeout=30) as answer:
        assert answer.url == f"{empty_house.url}/sign-in?then=%2Fdecisions"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'none'" in policy
        assert answer.headers["x-frame-options"] == "DENY"


def connects(house: Any, origin: str, cookie: str = "", client: str = "") -> bool:
    """Whether a web socket of that origin is let in."""
    address = house.url.replace("http", "ws")
    query = f"client_id={client}&EIO=4&transport=websocket"
    headers = {"Cookie": cookie} if cookie else {}
    try:
        with connect(f"{address}/_nicegui_ws/socket.io/?{query}", origin=origin, additional_headers=headers):
            return True
    except InvalidStatus as refused:
        return refused.response.status_code != 403


def test_a_socket_opens_for_its_own_page_alone(empty_house: Any, tokens: dict[str, tuple[str, str]]) -> None:
    own = empty_house.url
    with empty_house.visitor() as page, empty_house.visitor() as other:
        for visitor, name in ((page, "red"), (other, "eye")):
            sign_in(empty_house, visitor, tokens[name][1])
            visitor.get_by_role("link", name="red-job").wait_for()
        client = page.evaluate("window.clientId")
        mine, others = (
            "; ".join(f"{item['name']}={item['value']}" for item in visitor.context.cookies())
            for visitor in (page, other)
        )
        assert connects(empty_house, own, mine, client)
        assert not connects(empty_house, own, others, client)
        assert not connects(empty_house, own, "", client)
        assert not connects(empty_house, "http://elsewhere.example", mine, client)
