"""The Kubernetes manifest, against the published API schema."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from trimtab.core import BadInputError, Configuration, Workload
from trimtab.engines import job_file

Configure = Callable[..., Configuration]
WORKLOAD = Workload("Ünusual näme", command=("python", "train.py", "--note", "it's\n $(x)"))


def manifest(configuration: Configuration, **options: Any) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(job_file("kubernetes", WORKLOAD, configuration, **options)))


def pod(configuration: Configuration, **options: Any) -> dict[str, Any]:
    spec: dict[str, Any] = manifest(configuration, **options)[0]["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("version", ["1.31", "1.37"])
@pytest.mark.parametrize("spot", [False, True])
@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("offer", ["a100", "azure", "amd", "attached", "cpu"])
def test_the_schema_accepts_every_manifest(
    configuration: Configure, version: str, offer: str, nodes: int, spot: bool
) -> None:
    schema = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate==1.37.0")
    documents = manifest(configuration(offer, nodes=nodes, spot=spot), expected_seconds=4000.0)
    assert [document["kind"] for document in documents] == ["Job", "Service"][: 1 + (nodes > 1)]
    for document in documents:
        schema.validate(document, version, strict=True)


@pytest.mark.parametrize(
    ("offer", "resource", "count"),
    [("a100", "nvidia.com/gpu", 8), ("amd", "amd.com/gpu", 8), ("trainium", "aws.amazon.com/neuron", 16)],
)
def test_devices_are_asked_for_by_their_vendors_name(
    configuration: Configure, offer: str, resource: str, count: int
) -> None:
    (container,) = pod(configuration(offer), image="example/image:1")["containers"]
    assert container["resources"]["limits"] == {resource: count}
    assert container["image"] == "example/image:1"


def test_devices_without_a_default_image_need_one(configuration: Configure) -> None:
    with pytest.raises(BadInputError, match="Trainium"):
        manifest(configuration("trainium"))


@pytest.mark.parametrize(
    ("offer", "label", "value"),
    [
        ("a100", "eks.amazonaws.com/capacityType", "SPOT"),
        ("azure", "kubernetes.azure.com/scalesetpriority", "spot"),
        ("cpu", "cloud.google.com/gke-spot", "true"),
    ],
)
def test_spot_nodes_are_chosen_and_tolerated(
    configuration: Configure, offer: str, label: str, value: str
) -> None:
    spec = pod(configuration(offer, spot=True))
    assert spec["nodeSelector"][label] == value
    assert {"key": label, "operator": "Equal", "value": value, "effect": "NoSchedule"} in spec["tolerations"]
    assert label not in pod(configuration(offer))["nodeSelector"]


def test_an_attached_accelerator_is_split_from_its_host(configuration: Configure) -> None:
    assert pod(configuration("attached"))["nodeSelector"] == {
        "node.kubernetes.io/instance-type": "n1-standard-8",
        "cloud.google.com/gke-accelerator": "nvidia-tesla-t4",
    }


def test_requests_leave_room_for_the_nodes_own_agents(configuration: Configure) -> None:
    (container,) = pod(configuration("cpu"))["containers"]
    assert container["resources"]["requests"] == {"cpu": "6.9", "memory": "26828Mi"}


def test_several_nodes_find_the_first_through_the_service(configuration: Configure) -> None:
    job, service = manifest(configuration("a100", nodes=2))
    spec = job["spec"]["template"]["spec"]
    first = {"name": "MASTER_ADDR", "value": "nusual-n-me-0.nusual-n-me"}
    assert first in spec["containers"][0]["env"]
    assert spec["subdomain"] == service["metadata"]["name"] == job["metadata"]["name"]
    assert (job["spec"]["completionMode"], job["spec"]["parallelism"]) == ("Indexed", 2)
    assert service["spec"]["clusterIP"] == "None"


def test_a_tpu_slice_is_no_node(configuration: Configure) -> None:
    with pytest.raises(BadInputError, match="skypilot target"):
        manifest(configuration("tpu"))


def test_mpirun_over_several_nodes_is_refused(configuration: Configure) -> None:
    with pytest.raises(BadInputError, match="over ssh"):
        job_file("kubernetes", Workload("a", command=("mpirun", "x")), configuration("a100", nodes=2))
