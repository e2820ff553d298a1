"""Runs as Jobs: the official client against a small server that speaks the API's JSON. No cluster is near."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_kubernetes import KubernetesServer, write_kubeconfig

from trimtab.core import BadInputError, EngineEvent, Launch, Node, NotFoundError, TrimtabError, Workload
from trimtab.engines import KubernetesEngine, engine
from trimtab.engines.kubernetes.cluster import merged_logs

GIB = 2**30


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesServer]:
    pytest.importorskip("kubernetes", reason="needs kubernetes==37.0.2")
    there = KubernetesServer()
    for name in ("left", "right"):
        there.node(name, devices={"nvidia.com/gpu": "4"}, labels={"accelerator": "t4"})
    config = tmp_path / "config"
    write_kubeconfig(config, there.address)
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "home"))
    yield there
    there.close()


@pytest.fixture
def there(server: KubernetesServer) -> KubernetesEngine:
    return KubernetesEngine("training")


def launch(*parts: tuple[str, int], **more: Any) -> Launch:
    command = ("python", "train.py", "$(HOME)")
    wanted = {"cpus": 1.5, "memory": 2.0 * GIB, "gpus": 1.0, "environment": {"WORD": "it's"}, **more}
    return Launch("job-1", Workload("train", command=command), parts or (("left", 2), ("right", 1)), **wanted)


def told(there: KubernetesEngine, until: str) -> list[EngineEvent]:
    """What is told up to an event, which a watch hears of a moment later."""
    found = list[EngineEvent]()
    deadline = time.monotonic() + 20
    while until not in [event.what for event in found]:
        assert time.monotonic() < deadline, found
        found.extend(there.watch())
        time.sleep(0.02)
    return found


def test_nodes_are_those_that_take_pods(server: KubernetesServer, there: KubernetesEngine) -> None:
    server.node("broken", ready="False")
    server.node("plain", labels={"accelerator": "none to speak of"})
    assert list(there.nodes()) == [
        Node("left", 7.9, 16 * GIB, "t4", 4, "a"),
        Node("right", 7.9, 16 * GIB, "t4", 4, "a"),
        Node("plain", 7.9, 16 * GIB, "", 0, "a"),
    ]


@pytest.mark.parametrize("version", ["1.31", "1.37"])
@pytest.mark.parametrize("more", [{}, {"gpus": 0.0, "environment": {}}, {"memory": 0.0, "cpus": 0.0}])
def test_the_schema_accepts_every_object(
    server: KubernetesServer, there: KubernetesEngine, more: dict[str, Any], version: str
) -> None:
    schema = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate==1.37.0")
    there.launch(launch(**more))
    made = [each for (kind, _), each in server.objects.items() if kind != "nodes"]
    kinds = ["Job", "Service"] if more.get("environment") == {} else ["Job", "Service", "Secret"]
    assert [each["kind"] for each in made] == kinds
    for each in made:
        schema.validate(each, version, strict=True)


def test_a_gang_is_one_job_on_the_nodes_named(server: KubernetesServer, there: KubernetesEngine) -> None:
    run_id = there.launch(launch())
    spec, name = server.job()["spec"], f"trimtab-{run_id}"
    assert (spec["completionMode"], spec["parallelism"], spec["backoffLimit"]) == ("Indexed", 3, 0)
    pod = spec["template"]["spec"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"][0]["values"] == ["left.here", "right.here"]
    (spread,) = pod["topologySpreadConstraints"]
    assert (spread["maxSkew"], spread["whenUnsatisfiable"]) == (1, "DoNotSchedule")
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"cpu": "1500m", "memory": str(2 * GIB), "nvidia.com/gpu": "1"}
    assert container["command"] == ["python", "train.py", "$$(HOME)"], "nothing is expanded on the way"
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["MASTER_ADDR"] == f"{name}-0.{name}"
    assert "it's" not in json.dumps(server.job()), "the environment is in a Secret"
    assert server.objects["secrets", name]["stringData"] == {"WORD": "it's"}
    owner = server.objects["services", name]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"]) == ("Job", server.job()["metadata"]["uid"])


def test_an_image_comes_from_the_address_or_the_run(server: KubernetesServer) -> None:
    there = engine("kubernetes://training?image=registry/train:3")
    there.launch(launch())
    assert server.job()["spec"]["template"]["spec"]["containers"][0]["image"] == "registry/train:3"
    server.put("jobs", server.job(), "DELETED")
    there.launch(Launch("job-2", Workload("w", command=("x",)), (("left", 1),), 1.0, 0.0,
                        environment={"TRIMTAB_IMAGE": "mine:1"}))  # fmt: skip
    assert server.job()["spec"]["template"]["spec"]["containers"][0]["image"] == "mine:1"


def test_a_run_begins_and_ends_and_its_log_is_in_order_of_time(
    server: KubernetesServer, there: KubernetesEngine
) -> None:
    run_id = there.launch(launch())
    name = f"trimtab-{run_id}"
    server.begin(server.job()["metadata"]["name"], 0, 1)
    assert list(there.watch()) == [], "a gang has begun when all have"
    server.begin(server.job()["metadata"]["name"], 2)
    (start,) = told(there, "started")
    assert (start.run_id, start.time, start.detail) == (run_id, 1787392802.0, "workers: 3")
    assert there.running() == {run_id: "job-1"}
    server.logs = {f"{name}-0-x": "2026-08-22T10:00:00.1Z a\n2026-08-22T10:00:00.3Z c\n",
                   f"{name}-1-x": "2026-08-22T10:00:00.2Z b\n"}  # fmt: skip
    assert there.log(run_id).read_text() == "a\nb\nc\n"
    server.end({0: 0, 1: 0, 2: 0}, "Complete")
    (end,) = told(there, "ended")
    assert (end.time, end.detail) == (1787392920.0, "status 0")
    assert there.running() == {}
    assert list(there.watch()) == [], "told once"


@pytest.mark.parametrize(
    ("more", "what", "detail"),
    [
        ({}, "failed", "status 3 of worker 1"),
        ({"reason": "OOMKilled"}, "failed", "status 3 of worker 1, out of memory"),
        (
            {
                "pod_conditions": [
                    {"type": "DisruptionTarget", "status": "True", "message": "node is drained"}
                ]
            },
            "lost",
            "worker 1 was taken from its node: node is drained",
        ),
    ],
)
def test_of_a_gang_that_breaks_the_first_to_fail_is_named(
    server: KubernetesServer, there: KubernetesEngine, more: dict[str, Any], what: str, detail: str
) -> None:
    there.launch(launch())
    server.begin(server.job()["metadata"]["name"], 0, 1, 2)
    server.end({1: 3, 0: 143, 2: 143}, "Failed", **more)
    assert [(event.what, event.detail) for event in told(there, what)] == [
        ("started", "workers: 3"),
        (what, detail),
    ]


def test_a_job_without_pods_says_what_kubernetes_says(
    server: KubernetesServer, there: KubernetesEngine
) -> None:
    there.launch(launch())
    server.end({}, "Failed", message="quota exceeded")
    assert [(event.what, event.detail) for event in told(there, "failed")] == [("failed", "quota exceeded")]


def test_the_same_key_is_the_same_run_also_after_a_kill_in_the_middle(server: KubernetesServer) -> None:
    source = (
        "from trimtab.core import Launch, Workload; from trimtab.engines import engine;"
        "engine('kubernetes://training').launch(Launch('job-1', Workload('train', command=('x',)),"
        "(('left', 1),), 1.0, 0.0, environment={'WORD': 'x'}))"
    )
    child = subprocess.Popen([sys.executable, "-c", source])
    server.on_created = lambda kind: child.kill()  # after the Job, before anything else
    assert child.wait(60) == -9
    server.on_created = lambda kind: None
    assert [kind for kind, _ in server.objects if kind != "nodes"] == ["jobs"]
    there = KubernetesEngine("training")
    run_id = there.launch(launch(("left", 1)))
    assert [kind for kind, _ in server.objects if kind != "nodes"] == ["jobs", "services", "secrets"]
    assert (there.launch(launch(("left", 1))), there.running()) == (run_id, {run_id: "job-1"})


def test_stopping_deletes_the_job_with_its_pods_and_keeps_the_log(
    server: KubernetesServer, there: KubernetesEngine
) -> None:
    run_id = there.launch(launch(("left", 1)))
    server.begin(server.job()["metadata"]["name"], 0)
    told(there, "started")
    server.logs[f"trimtab-{run_id}-0-x"] = "2026-08-22T10:00:00Z so far\n"
    assert there.log(run_id).read_text() == "so far\n"
    there.stop(run_id, grace=2.5)
    assert server.bodies == [
        {"deleted": "jobs", "propagationPolicy": "Foreground"},
        {"deleted": "pods", "gracePeriodSeconds": 3},
    ]
    assert [event.detail for event in told(there, "ended")] == ["stopped"]
    assert there.log(run_id).read_text() == "so far\n"
    there.stop(run_id)


def test_signals_and_sizes_reach_every_pod(server: KubernetesServer, there: KubernetesEngine) -> None:
    run_id = there.launch(launch(("left", 2)))
    with pytest.raises(NotFoundError, match=run_id):
        there.signal(run_id, "USR1")
    server.begin(server.job()["metadata"]["name"], 0, 1)
    there.signal(run_id, "SIGUSR1")
    pods = [f"trimtab-{run_id}-{rank}-x" for rank in (0, 1)]
    assert server.executed == [(pod, ["sh", "-c", "kill -s USR1 1"]) for pod in pods]
    there.resize(run_id, 0.5, None)
    half = {"name": "main", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}}}
    assert server.bodies == [{"spec": {"containers": [half]}}] * 2
    with pytest.raises(BadInputError, match="-1"):
        there.resize(run_id, -1.0, None)


def test_a_server_that_is_away_has_lost_nothing(server: KubernetesServer, there: KubernetesEngine) -> None:
    run_id = there.launch(launch(("left", 1)))
    server.refusal = (503, "etcd is away")
    for question in (lambda: list(there.watch()), there.running, there.nodes, lambda: there.stop(run_id)):
        with pytest.raises(TrimtabError, match=r"503.*etcd is away"):
            question()
    server.refusal = None
    server.begin(server.job()["metadata"]["name"], 0)
    assert [event.what for event in told(there, "started")] == ["started"]


@pytest.mark.parametrize(
    ("refused", "error", "named"),
    [
        (launch(("left", 5)), BadInputError, "5 workers.*1 accelerators.* left"),
        (launch(("left", 1), gpus=0.5), BadInputError, r"0\.5 accelerators"),
    ],
)
def test_an_impossible_launch_is_refused(
    there: KubernetesEngine, refused: Launch, error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        there.launch(refused)
    assert there.running() == {}


@pytest.mark.parametrize("address", ["UPPER", "a/b", "ns?picture=x", "-"])
def test_an_address_is_a_namespace_and_an_image(address: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(f"kubernetes://{address}")):
        KubernetesEngine(address)


def test_lines_of_one_pod_stay_in_their_order() -> None:
    assert merged_logs(["1 a\n1 b\n2 c\n", "1 x\n3 y"]) == "a\nb\nx\nc\ny"
