"""Compiled pipelines of version 2, as kfp 2.17 writes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab.core import BadInputError
from trimtab.pipelines import Pipeline, write_requests
from trimtab.pipelines.pipeline import Content, CurrentRequest, ResourceRequest

Read = Callable[..., Pipeline]


def without_resources(text: str) -> Any:
    document = yaml.safe_load(text)
    for executor in document["deploymentSpec"]["executors"].values():
        executor["container"].pop("resources", None)
    return document


def test_tasks_within_tasks_become_stages_in_order(pipeline: Read) -> None:
    after = {stage.name: stage.after for stage in pipeline("kubeflow.yaml").stages}
    assert after == {
        "condition-3.light-3": (),
        "for-loop-2.light-2": (),
        "inner.load": (),
        "load": (),
        "train": ("load",),
        "train-2": ("inner.load",),
        "light": ("train",),
    }


def test_placeholders_become_paths_and_values(pipeline: Read, tmp_path: Path) -> None:
    read = pipeline("kubeflow.yaml", n="7")
    made = tmp_path / "work" / "artifacts"
    words = ("python", "load.py", "--out", str(made / "load" / "out"), "--n", "7")
    assert read.stage("load").command == tuple(
        (word,) for word in (*words, "--note", str(made / "load" / "note"), "a7")
    )
    note, train = Content(made / "load" / "note"), read.stage("train")
    assert train.command[2] == ("echo ", note)
    assert train.command[-2:] == (("--x",), ("", note)), "an optional input that is there"
    assert train.inputs == (made / "load" / "out",)
    assert read.stage("inner.load").command[5] == ("3",), "given to the graph around it"
    assert read.stage("train-2").inputs == (made / "inner.load" / "out",), "made inside a graph"
    assert train.environment == {"A": "b"}


def test_what_only_a_cluster_can_run_says_why(pipeline: Read) -> None:
    read = pipeline("kubeflow.yaml")
    assert "package kfp" in read.stage("light").obstacle
    assert "once per item" in read.stage("for-loop-2.light-2").obstacle
    assert "under a condition" in read.stage("condition-3.light-3").obstacle
    assert read.stage("load").obstacle == ""


def test_requests_are_read_old_and_new(pipeline: Read) -> None:
    read = pipeline("kubeflow.yaml")
    assert read.stage("load").current == CurrentRequest(0.5, 1e9, 2.0)
    assert read.stage("train").current == CurrentRequest(accelerator="nvidia.com/gpu", accelerators=1)
    old = "\n".join(line for line in read.text.splitlines() if "          resource" not in line)
    assert pipeline(old).stage("load").current == CurrentRequest(0.5, 1e9, 2.0)


def test_only_resources_change(pipeline: Read) -> None:
    read = pipeline("kubeflow.yaml")
    requests = {stage.name: ResourceRequest(2.5, 3 * 2**28) for stage in read.stages}
    requests["train"] = ResourceRequest(0.5, 2**28, "T4", 2)
    text, comments = write_requests(read, requests)
    assert comments
    assert text.startswith("# PIPELINE DEFINITION\n")
    assert without_resources(text) == without_resources(read.text)
    executors = yaml.safe_load(text)["deploymentSpec"]["executors"]
    assert executors["exec-load"]["container"]["resources"] == {
        "cpuLimit": 2.5,
        "cpuRequest": 2.5,
        "memoryLimit": 0.805306368,
        "memoryRequest": 0.805306368,
        "resourceCpuLimit": "2500m",
        "resourceCpuRequest": "2500m",
        "resourceMemoryLimit": "768Mi",
        "resourceMemoryRequest": "768Mi",
    }, "the limit of 2 cores would be below the request"
    devices = executors["exec-train"]["container"]["resources"]["accelerator"]
    assert devices == {
        "count": "2",
        "resourceCount": "2",
        "resourceType": "nvidia.com/gpu",
        "type": "nvidia.com/gpu",
    }
    again = pipeline(text)
    assert again.stage("train").current == CurrentRequest(0.5, 2**28, None, "nvidia.com/gpu", 2)


def test_a_job_with_the_pipeline_inside_is_read_too(pipeline: Read) -> None:
    spec = yaml.safe_load(pipeline("kubeflow.yaml").text)
    job = yaml.safe_dump({"pipelineSpec": spec, "runtimeConfig": {"parameterValues": {"n": 9}}})
    read = pipeline(job)
    assert read.stage("load").command[5] == ("9",)
    text, _ = write_requests(read, {stage.name: ResourceRequest(1.0, 2**30) for stage in read.stages})
    assert pipeline(text).stage("light").current == CurrentRequest(1.0, 2**30)


def test_the_makers_own_reader_accepts_what_is_written(pipeline: Read) -> None:
    pytest.importorskip("kfp.pipeline_spec", reason="needs the package kfp")
    from google.protobuf import json_format  # type: ignore[import-untyped]
    from kfp.pipeline_spec import pipeline_spec_pb2

    read = pipeline("kubeflow.yaml")
    text, _ = write_requests(read, {stage.name: ResourceRequest(1.0, 2**30) for stage in read.stages})
    json_format.ParseDict(yaml.safe_load(text), pipeline_spec_pb2.PipelineSpec())


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("name: comp-load\n", "name: comp-lost\n", '"comp-lost"'),
        ("- load\n        inputs", "- lost\n        inputs", '"lost"'),
        ("'2'\n          resourceCpuRequest", "two\n          resourceCpuRequest", "resourceCpuLimit.*two"),
    ],
)
def test_a_damaged_file_is_refused(pipeline: Read, old: str, new: str, sentence: str) -> None:
    text = pipeline("kubeflow.yaml").text
    assert old in text
    with pytest.raises(BadInputError, match=sentence):
        pipeline(text.replace(old, new))


def test_an_unknown_parameter_is_refused(pipeline: Read) -> None:
    with pytest.raises(BadInputError, match=r'"m".* n'):
        pipeline("kubeflow.yaml", m="1")
