"""Vertex AI's CustomJobSpec, against the field names of its documentation."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from trimtab.core import BadInputError, Configuration, Workload
from trimtab.engines import job_file

Configure = Callable[..., Configuration]
WORKLOAD = Workload("Ünusual näme 🚢", command=("python", "train.py", "--note", "it's\n 🚢 $(x)"))

FIELDS: Mapping[str, Any] = {
    "workerPoolSpecs": {
        "machineSpec": {"machineType": str, "acceleratorType": str, "acceleratorCount": int},
        "replicaCount": int,
        "containerSpec": {"imageUri": str, "command": list, "args": list},
    },
    "scheduling": {"timeout": str, "strategy": str, "restartJobOnWorkerRestart": bool},
}


def check(value: Any, fields: Any) -> None:
    if isinstance(fields, type):
        assert type(value) is fields
    elif isinstance(value, list):
        for item in value:
            check(item, fields)
    else:
        assert set(value) <= set(fields)
        for name, item in value.items():
            check(item, fields[name])


def spec(configuration: Configuration, **options: Any) -> dict[str, Any]:
    text = job_file("vertex", WORKLOAD, configuration, **options)
    parsed: dict[str, Any] = json.loads(text)
    # gcloud reads its --config as YAML.
    assert yaml.safe_load(text) == parsed
    return parsed


@pytest.mark.parametrize("spot", [False, True])
@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("offer", ["attached", "h100", "cpu"])
def test_only_documented_fields_are_used(
    configuration: Configure, offer: str, nodes: int, spot: bool
) -> None:
    parsed = spec(configuration(offer, nodes=nodes, spot=spot), expected_seconds=4000.0)
    check(parsed, FIELDS)
    assert [pool["replicaCount"] for pool in parsed["workerPoolSpecs"]] == ([1] if nodes == 1 else [1, 2])
    assert parsed["scheduling"]["timeout"] == "8040s"
    assert parsed["scheduling"].get("strategy") == ("SPOT" if spot else None)


def test_an_attached_accelerator_is_split_from_its_host(configuration: Configure) -> None:
    assert spec(configuration("attached"))["workerPoolSpecs"][0]["machineSpec"] == {
        "machineType": "n1-standard-8",
        "acceleratorType": "NVIDIA_TESLA_T4",
        "acceleratorCount": 1,
    }


def test_the_header_stands_in_the_script(configuration: Configure) -> None:
    script = spec(configuration("cpu"))["workerPoolSpecs"][0]["containerSpec"]["args"][0]
    launch = "gcloud ai custom-jobs create --region=us-central1 --display-name=nusual-n-me --config=job.json"
    assert f"# Launch: {launch}\n" in script


def test_another_cloud_is_refused(configuration: Configure) -> None:
    with pytest.raises(BadInputError, match='not on "aws"'):
        spec(configuration("a100"))
