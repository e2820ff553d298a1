"""Pods resized through the API: what is asked, what is answered, and what is said when it is refused."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trimtab.core import BadInputError, NotFoundError, SimulatedClock, TrimtabError
from trimtab.engines import KubernetesError
from trimtab.resize import ContainerSize, resize_pod

MIB = 2**20
SIZE = ContainerSize(cpu_request=0.1, cpu_limit=0.25, memory_limit=64.0 * MIB)


@pytest.fixture
def server(api_server: Any) -> Any:
    api_server.put("cart", "uid-1", ids={"main": "aa", "side": "bb"})
    return api_server


def _report(server: Any, *conditions: dict[str, str], **resources: dict[str, str]) -> None:
    """What the kubelet says about the pod."""
    status = server.pods["web", "cart"]["status"]
    status["conditions"] = [{"status": "True", **condition} for condition in conditions]
    status["containerStatuses"][0]["resources"] = resources


def test_one_container_is_resized_and_the_rest_stays_as_it_was(server: Any, api: Any) -> None:
    schema = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate==1.37.0")
    before = json.loads(json.dumps(server.pods["web", "cart"]))
    found = resize_pod("web", "cart", {"main": SIZE}, api=api)
    assert (found.state, found.reason) == ("in progress", "the kubelet has not reported it yet")
    pod = server.pods["web", "cart"]
    schema.validate(pod, "1.37", strict=True)
    main, side = pod["spec"]["containers"]
    assert main.pop("resources") == {
        "requests": {"cpu": "100m"},
        "limits": {"cpu": "250m", "memory": str(64 * MIB)},
    }
    del before["spec"]["containers"][0]["resources"]
    assert [main, side] == before["spec"]["containers"]


def test_it_is_done_when_the_kubelet_reports_what_was_asked_for(server: Any, api: Any) -> None:
    _report(server, requests={"cpu": "0.1"}, limits={"cpu": "250m", "memory": "64Mi"})
    assert resize_pod("web", "cart", {"main": SIZE}, api=api).state == "done"


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        ({"type": "PodResizePending", "reason": "Infeasible", "message": "Node has 4 CPUs"}, "infeasible"),
        ({"type": "PodResizePending", "reason": "Deferred", "message": "no room"}, "deferred"),
        ({"type": "PodResizeInProgress", "message": "shrinking"}, "in progress"),
        ({"type": "PodResizePending", "status": "False", "reason": "Infeasible"}, "in progress"),
    ],
)
def test_what_the_kubelet_says_of_it_is_read_back(
    server: Any, api: Any, condition: dict[str, str], state: str
) -> None:
    _report(server, condition)
    found = resize_pod("web", "cart", {"main": SIZE}, api=api)
    assert found.state == state
    assert condition.get("message", "the kubelet has not reported it yet") == found.reason


def test_clusters_before_the_conditions_have_a_word_for_it(server: Any, api: Any) -> None:
    server.pods["web", "cart"]["status"]["resize"] = "Infeasible"
    assert resize_pod("web", "cart", {"main": SIZE}, api=api).state == "infeasible"


class Kubelet(SimulatedClock):
    """Time in which the kubelet does what it was asked for."""

    def __init__(self, server: Any) -> None:
        super().__init__()
        self._server = server

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.monotonic() > 2.0:
            _report(self._server, requests={"cpu": "100m"}, limits={"cpu": "250m", "memory": "64Mi"})


def test_waiting_ends_when_it_is_done_or_time_is_up(server: Any, api: Any) -> None:
    assert resize_pod("web", "cart", {"main": SIZE}, wait=1.0, api=api, clock=Kubelet(server)).state != "done"
    assert resize_pod("web", "cart", {"main": SIZE}, wait=9.0, api=api, clock=Kubelet(server)).state == "done"


def test_a_lost_race_is_run_again(server: Any, api: Any) -> None:
    server.refusals += [(409, "the object has been modified")] * 3
    resize_pod("web", "cart", {"main": SIZE}, api=api, clock=SimulatedClock())
    assert server.pods["web", "cart"]["spec"]["containers"][0]["resources"]
    server.refusals += [(409, "the object has been modified")] * 20
    with pytest.raises(TrimtabError, match="cart"):
        resize_pod("web", "cart", {"main": SIZE}, api=api, clock=SimulatedClock())


@pytest.mark.parametrize(
    ("status", "message", "kind", "said"),
    [
        (403, "nodes cannot patch", TrimtabError, "nodes cannot patch.*pods/resize"),
        (404, 'pods "cart" not found', NotFoundError, "cart in web"),
        (404, "could not find the requested resource", TrimtabError, "1.33"),
        (422, "Pod QOS Class may not change", BadInputError, "Pod QOS Class may"),
        (500, "etcd is away", KubernetesError, "500: etcd is away"),
    ],
)
def test_refusals_are_said_in_a_sentence(
    server: Any, api: Any, status: int, message: str, kind: type[TrimtabError], said: str
) -> None:
    server.refusals.append((status, message))
    with pytest.raises(kind, match=said):
        resize_pod("web", "cart", {"main": SIZE}, api=api)


def test_a_server_that_does_not_answer_is_said_so(server: Any, api: Any) -> None:
    server.close()
    api.api_client.configuration.retries = 0
    with pytest.raises(KubernetesError, match="answer"):
        resize_pod("web", "cart", {"main": SIZE}, api=api)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({}, "cart"),
        ({"main": ContainerSize()}, "cart"),
        ({"main": ContainerSize(cpu_limit=0.0)}, "above zero"),
        ({"main": ContainerSize(memory_limit=float("nan"))}, "above zero"),
        ({"main": ContainerSize(cpu_request=2.0, cpu_limit=1.0)}, "cpu request 2 .*limit 1"),
    ],
)
def test_what_makes_no_sense_is_not_even_asked(
    server: Any, api: Any, sizes: dict[str, ContainerSize], said: str
) -> None:
    with pytest.raises(BadInputError, match=said):
        resize_pod("web", "cart", sizes, api=api)
    assert server.requests == []


@given(st.floats(1e-3, 1e3), st.floats(1.0, 1e15))
def test_quantities_are_never_less_than_what_was_asked_for(cpus: float, count: float) -> None:
    quantity = pytest.importorskip("kubernetes.utils.quantity", reason="needs kubernetes==37.0.2")
    limits = ContainerSize(cpu_limit=cpus, memory_limit=count).resources()["limits"]
    assert cpus - 1e-8 <= float(quantity.parse_quantity(limits["cpu"])) <= cpus + 1e-3
    assert count <= float(quantity.parse_quantity(limits["memory"])) <= count + 1
