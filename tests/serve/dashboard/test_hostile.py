"""Every text that somebody else can choose, on every page: it is read, and nothing of it runs."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dashboard_house import House, profile_of

from trimtab import fabric, resize
from trimtab.core import Answer, Contribution, Decision, Estimate, Outcome
from trimtab.engines.run_folder import Intent, RunFolder
from trimtab.fabric.failover.keeper import Failover, UplinkNow
from trimtab.predict import Foundation, Versions
from trimtab.predict.fewshot.foundation import shipped_foundation
from trimtab.resize.status import ContainerRow, PoolStatus
from trimtab.schedule import NodeGroup
from trimtab.serve.http import HttpApplication
from trimtab.serve.processes.server import listening
from trimtab.serve.settings import Settings
from trimtab.store import (
    EventFilter,
    JobRecord,
    JobRun,
    JobState,
    Outlook,
    Part,
    Role,
    Store,
    Tenant,
    open_store,
)

HOSTILE = (
    "<img src=x onerror=alert(1)><script>alert(2)</script><svg onload=alert(3)></svg>"
    "<a href=javascript:alert(4)>five</a>{{6*7000+1}}${6*7000+1}</script></textarea>'\"`--><b id=bold>"
)
EVALUATED = "42001"
RUN = "0123456789ab"
PAGES = {
    "/": "Nodes in use",
    "/jobs": "Queue and history",
    "/recommend": "What you want",
    "/partition": "Earlier plans",
    "/resize": "Limits and use",
    "/fabric": f"Host {HOSTILE}",
    "/decisions": "The ledger",
    "/decisions/d-partition": "Rule and model",
    "/decisions/n-recommend-2": "Rule and model",
    "/models": "Drift",
    "/catalog": "Accelerators",
}


def job(id: str, state: JobState, now: float) -> JobRecord:
    """One whose every text is hostile; it runs where no scheduler of ours looks."""
    run = JobRun(
        attempt=1,
        parts=(Part(HOSTILE, 1),),
        group=HOSTILE,
        engine="local://",
        run_id=RUN,
        since=now - 5.0,
        decision="d-partition",
        reason=HOSTILE,
        ended=now if state.final else None,
    )
    spec = {"job": {"workload": {"name": HOSTILE, "command": [HOSTILE]}, "worker": {"gpus": 1, "cpus": 1}}}
    return JobRecord(id, now - 9.0, HOSTILE, HOSTILE, HOSTILE, state, spec, 1, run, 1.0, Outlook(HOSTILE))


def decision(kind: str, now: float) -> Decision:
    output = {HOSTILE: Estimate(10.0, 8.0, 12.0, 0.9, HOSTILE), "time": Estimate(10.0, 8.0, 12.0, 0.9, "s")}
    answer = Answer(HOSTILE, {HOSTILE: HOSTILE, "instance": HOSTILE, "cloud": HOSTILE}, output)
    parts = (Contribution(HOSTILE, 3.0),)
    return Decision(
        f"d-{kind}",
        now,
        kind,
        HOSTILE,
        answer.action,
        output,
        HOSTILE,
        answer,
        answer,
        (answer,),
        HOSTILE,
        parts,
    )


def beyond(kind: str, id: str, number: float) -> Decision:
    """One whose every number is of no use."""
    made = decision(kind, number)
    output = {
        name: Estimate(number, number, number, 0.9, "s") for name in ("time", "cost", "memory", HOSTILE)
    }
    answer = Answer(HOSTILE, {"instance": 1.0, "nodes": number, "cloud": None, "spot": number}, output)
    parts = (Contribution(HOSTILE, number),)
    return replace(
        made, id=id, estimates=output, rule=answer, model=answer, action=answer.action, contributions=parts
    )


def fill(store: Store, home: Path, now: float) -> None:
    """One of everything."""
    store.jobs.submit(
        [job(id, state, now) for id, state in (("done", JobState.ENDED), ("runs", JobState.RUNNING))]
    )
    store.jobs.submit([job("waits", JobState.WAITING, now)])
    for kind in ("recommend", "partition", "schedule", "hostile"):
        store.ledger.record(decision(kind, now))
        store.ledger.record_outcome(Outcome(f"d-{kind}", now, {"time": 11.0, HOSTILE: 1.0}, HOSTILE))
        for place, number in enumerate((1e300, -1e300, float("inf"))):
            store.ledger.record(beyond(kind, f"n-{kind}-{place}", number))
            store.ledger.record_outcome(Outcome(f"n-{kind}-{place}", number, {"time": number}, HOSTILE))
    store.profiles.save(profile_of(HOSTILE, "profile-hostile"))
    store.profiles.save(replace(profile_of(HOSTILE, "profile-late"), created=1e300))
    store.tenants.put(Tenant(HOSTILE))
    store.events.append("drift", HOSTILE, {"sentence": HOSTILE}, now)
    store.notes.put("scheduler", {"engine": HOSTILE, "policy": HOSTILE, "groups": (_group(),)}, now)
    (home / "engines" / "local").mkdir(parents=True)
    run = RunFolder(home / "engines" / "local" / RUN)
    run.make(Intent("key", "train", 1.0, 1))
    run.log.write_text(f"{HOSTILE}\nwritten\n")
    shipped = shipped_foundation()
    about = {"parent": HOSTILE, "comparisons": [{HOSTILE: HOSTILE}]}
    versions = Versions(home / "models")
    few = {"scout": shipped.predictors["scout"]}
    versions.make_current(versions.add(Foundation(few, {"seed": 0, "version": about})), now)


def _group() -> NodeGroup:
    return NodeGroup(HOSTILE, HOSTILE, 2, 4, 8.0, 1e9, 0.001, zone=HOSTILE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[House]:
    """The dashboard in this process, with tokens, over a store in which nothing means well."""
    home, now = tmp_path_factory.mktemp("hostile"), time.time()
    uplink = UplinkNow(HOSTILE, HOSTILE, "up", now, None, 0, True)
    observed = fabric.Status(
        HOSTILE,
        now,
        (uplink,),
        {HOSTILE: (HOSTILE,)},
        {"gone": now},
        (Failover(now, HOSTILE, HOSTILE, "bfd", 0.003, 1),),
        (HOSTILE,),
    )
    row = ContainerRow(f"/{HOSTILE}", HOSTILE, 0.5, 0.4, 2e8, 1e8, 1, 1, 1)
    pools = PoolStatus(now, 0, {HOSTILE: (2.0, 1e9)}, (row,), {HOSTILE: (0.5, 2e8)})
    with pytest.MonkeyPatch.context() as patch, open_store(f"sqlite:///{home}/trimtab.sqlite") as store:
        patch.setattr(fabric, "fabrics_here", lambda: (HOSTILE,))
        patch.setattr(fabric, "read_status", lambda host: observed)
        patch.setattr(fabric, "agent_runs", lambda host: False)
        patch.setattr(resize, "read_status", lambda now: replace(pools, time=now))
        fill(store, home, now)
        settings = Settings(listen="127.0.0.1:0", rate_limit=0.0)
        with listening(HttpApplication(store, settings), settings) as served:
            yield House(served.port, {"TRIMTAB_HOME": str(home)}, store, chromium)


@pytest.fixture(autouse=True)
def _its_home(server: House, _own_home: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is in this process, and looks into the home of whichever test runs."""
    monkeypatch.setenv("TRIMTAB_HOME", server.environment["TRIMTAB_HOME"])


def sign_in(server: House, page: Any, text: str, path: str) -> None:
    page.goto(server.url + path)
    page.get_by_label("Token").fill(text)
    page.get_by_role("button", name="Sign in").click()


def test_whatever_is_written_is_shown_as_it_is_written_and_nothing_runs(server: House) -> None:
    _, text = server.store.tokens.make(HOSTILE, "*", Role.ADMIN)
    with server.visitor() as page:
        sign_in(server, page, text, "/")
        for path, ready in PAGES.items():
            page.goto(server.url + path)
            page.get_by_role("heading", name=ready, exact=True).wait_for()
            page.wait_for_function("window.did_handshake")
            shown = page.locator("body").inner_text()
            assert HOSTILE[:28] in shown or path in ("/recommend", "/catalog"), path
            assert EVALUATED not in shown, path
            strange = "img, #bold, a[href^='javascript'], svg[onload], [onerror], script:not([nonce])"
            assert page.locator(f".content :is({strange})").count() == 0, path
            assert server.problems == [], path
        page.goto(f"{server.url}/jobs/done")
        page.get_by_text("written").last.wait_for()
        assert HOSTILE in page.locator("pre.log").inner_text()
        assert server.problems == []
        page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), {textContent: 'ran = 1'}))"
        )
        assert page.evaluate("typeof ran") == "undefined"
        assert any("Content Security Policy" in item for item in server.problems)
        server.problems.clear()


def test_the_rollback_button_lets_an_earlier_version_answer_again(server: House) -> None:
    versions = Versions(Path(server.environment["TRIMTAB_HOME"]) / "models")
    assert versions.current.name == "v1"
    _, text = server.store.tokens.make("operator", "*", Role.OPERATOR)
    with server.visitor() as page:
        sign_in(server, page, text, "/models")
        page.wait_for_function("window.did_handshake")
        page.locator("tr", has_text="v1").locator("[data-state=current]").wait_for()
        page.get_by_role("button", name="Let it answer").click()
        page.get_by_text("shipped answers now.").wait_for()
        assert versions.current.name == "shipped"
        page.locator("tr", has_text="shipped").locator("[data-state=current]").wait_for()
        page.get_by_role("button", name="Let it answer").click()
        page.get_by_text("v1 answers now.").wait_for()
    assert versions.current.name == "v1"
    noted = server.store.events.page(10, EventFilter("audit")).items
    assert [(item.detail["did"], item.subject) for item in noted] == [
        ("models.rollback", "v1"),
        ("models.rollback", "shipped"),
    ]
    assert server.problems == []
