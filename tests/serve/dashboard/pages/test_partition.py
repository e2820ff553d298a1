"""Plans for graphs that people upload."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from dashboard_house import faults

from trimtab.core import BadInputError, TrimtabError
from trimtab.serve.access import LOCAL, ForbiddenError, Principal
from trimtab.serve.dashboard.pages.partition import PLANS, STAGES, PlanForm, graph_of, planned
from trimtab.serve.dashboard.widgets import table_rows
from trimtab.serve.operations import Backend, Service
from trimtab.store import Role, Token, open_store


def graph(layers: int = 6, name: str = "layer") -> str:
    """A chain of equal layers, as a graph file has it."""
    names = [f"{name} {number}" for number in range(layers)]
    nodes = [{"name": item, "kind": "matmul", "flop": 2e9, "parameters": 4e6, "saved": 4e5} for item in names]
    edges = [{"from": a, "to": b, "bytes": 4e5} for a, b in itertools.pairwise(names)]
    return json.dumps({"name": "chain", "nodes": nodes, "edges": edges})


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with open_store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
        yield Service(Backend(store), LOCAL)


def test_a_plan_is_kept_as_a_decision_and_comes_with_two_pictures(service: Service) -> None:
    shown = planned(service, PlanForm("g.json", graph(name="<b>"), "t4:2", "10Gbit", 16))
    made = service.decisions.get(shown.decision)
    assert made.kind == "partition"
    assert [row["model"] for row in table_rows(PLANS, [made])] == ["chain"]
    assert [row["rank#"] for row in table_rows(STAGES, shown.words.stages)][:1] == [1]
    assert [ElementTree.fromstring(item).tag for item in shown.pictures] == [
        "{http://www.w3.org/2000/svg}svg"
    ] * 2


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        (PlanForm(devices="t4:2"), "upload"),
        (PlanForm("g.json", graph(), "/etc/passwd.yaml"), "a100"),
        (PlanForm("g.json", graph(), ""), "devices"),
        (PlanForm("g.json", graph(), "nosuch:2"), "nosuch"),
        (PlanForm("g.json", graph(), "t4:2", batch=None), "at least 1"),
        (PlanForm("g.json", "{", "t4:2"), '"g.json"'),
        (PlanForm("g.json", graph(3001), "t4:2"), "3001"),
    ],
)
def test_what_cannot_be_planned_is_said_in_a_sentence(
    service: Service, form: PlanForm, sentence: str
) -> None:
    with pytest.raises(TrimtabError, match=sentence):
        planned(service, form)


def test_an_uploads_folder_is_nobodys_business() -> None:
    with pytest.raises(BadInputError) as refused:
        graph_of(PlanForm("mine.json", '{"nodes": 3}'))
    assert "/tmp" not in str(refused.value)


def test_a_viewer_plans_nothing(service: Service) -> None:
    viewer = Principal(Token("id", "name", "red", Role.VIEWER, frozenset({"*"}), 0.0))
    with pytest.raises(ForbiddenError):
        planned(Service(service.backend, viewer), PlanForm("g.json", graph(), "t4:2"))


def test_a_graph_is_uploaded_and_its_plan_is_drawn(house: Any, tmp_path: Path) -> None:
    file = tmp_path / "chain.json"
    file.write_text(graph())
    with house.visitor() as page:
        page.goto(f"{house.url}/partition")
        page.wait_for_function("window.did_handshake")
        page.get_by_label("A graph file").set_input_files(file)
        page.get_by_text('"chain.json" is ready.').wait_for()
        page.get_by_label("Devices, like").fill("t4:2")
        page.get_by_role("button", name="Plan", exact=True).click()
        page.get_by_role("heading", name="Why this cut").wait_for()
        page.wait_for_function(
            "Array.from(document.images).filter(each => each.complete && each.naturalWidth > 0).length === 2"
        )
        assert faults(page) == []
    assert house.problems == []
