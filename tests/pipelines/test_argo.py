"""Compiled pipelines of version 1: Argo Workflows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab.core import BadInputError, Profile
from trimtab.pipelines import Pipeline, profile_stages, write_requests
from trimtab.pipelines.pipeline import CurrentRequest, ResourceRequest

Read = Callable[..., Pipeline]


def without_resources(text: str) -> Any:
    document = yaml.safe_load(text)
    for template in document["spec"]["templates"]:
        template.get("container", {}).pop("resources", None)
    return document


def test_tasks_wait_for_those_they_name_and_those_that_make_their_inputs(pipeline: Read) -> None:
    read = pipeline("argo.yaml")
    assert [stage.name for stage in read.stages] == ["write", "count", "mail"]
    assert read.stage("mail").after == ("count", "write")
    assert read.stage("write").current == CurrentRequest(0.25, 1e9, 0.25), "limits alone are requests too"
    assert read.stage("mail").current == CurrentRequest(2.0, 2**32, None, "nvidia.com/gpu", 2)


def test_commands_run_here_with_files_of_ours(
    pipeline: Read, tmp_path: Path, used: Callable[..., Profile]
) -> None:
    read = pipeline("argo.yaml", words="four more words here")
    profiles, made = profile_stages(read, tmp_path / "work", {"mail": used([1.0], [1e6])})
    assert made == ("write", "count")
    counted = (tmp_path / "work" / "artifacts" / "count" / "count-count").read_text()
    assert counted.split() == ["4", "3"], "words in the file, and the parameter that the first stage wrote"
    assert not Path("/tmp/outputs").exists()
    assert profiles["count"].workload.name == "words/count"


def test_a_program_of_the_image_is_named(pipeline: Read, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r'"mail".*"mail-program-of-the-image"'):
        profile_stages(pipeline("argo.yaml"), tmp_path / "work")
    assert not (tmp_path / "work").exists(), "nothing was run before that was known"


def test_only_resources_change_and_kubernetes_accepts_them(pipeline: Read) -> None:
    schema = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate==1.37.0")
    read = pipeline("argo.yaml")
    requests = {stage.name: ResourceRequest(0.35, 96 * 2**20) for stage in read.stages}
    text, comments = write_requests(read, {**requests, "count": ResourceRequest(1.0, 2**30, "A100", 1)})
    assert comments
    assert "# The words to count." in text
    assert without_resources(text) == without_resources(read.text)
    written = {item["name"]: item.get("container") for item in yaml.safe_load(text)["spec"]["templates"]}
    assert written["write"]["resources"] == {
        "requests": {"cpu": "350m", "memory": "96Mi"},
        "limits": {"cpu": "350m", "memory": "96Mi"},
    }
    assert written["count"]["resources"]["limits"] == {"memory": "1Gi", "nvidia.com/gpu": 1}
    assert written["mail"]["resources"]["requests"]["ephemeral-storage"] == "1Gi"
    for name in ("write", "count", "mail"):
        pod = {"containers": [{"name": name, **written[name]}]}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod}
        schema.validate(document, "1.37", strict=True)


def test_accelerators_can_be_taken_away(pipeline: Read) -> None:
    read = pipeline("argo.yaml")
    requests = {stage.name: ResourceRequest(1.0, 2**28, "", 0) for stage in read.stages}
    again = pipeline(write_requests(read, requests)[0])
    assert again.stage("mail").current == CurrentRequest(1.0, 2**28)


def test_steps_wait_for_the_steps_before(pipeline: Read) -> None:
    read = pipeline("""
        kind: CronWorkflow
        metadata: {name: nightly}
        spec:
          workflowSpec:
            entrypoint: all
            templates:
            - name: all
              steps:
              - - {name: a, template: one}
                - {name: b, template: one, withItems: [1, 2]}
              - - {name: c, template: one, when: '1 == 1'}
            - name: one
              container: {command: [echo, '{{workflow.name}}', '{{pod.name}}']}
    """)
    assert {stage.name: stage.after for stage in read.stages} == {"a": (), "b": (), "c": ("a", "b")}
    assert "pod.name" in read.stage("a").obstacle
    assert "once per item" in read.stage("b").obstacle
    text, _ = write_requests(read, {stage.name: ResourceRequest(1.0, 2**28) for stage in read.stages})
    assert pipeline(text).stage("c").current.memory == 2**28


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("template: count", "template: lost", '"count".*"lost"'),
        ("entrypoint: words", "entrypoint: lost", 'entrypoint.*"lost"'),
        ("template: mail", "template: words", "without end"),
        ("cpu: 250m", "cpu: some", r"write\.resources\.limits\.cpu.*some"),
    ],
)
def test_a_damaged_file_is_refused(pipeline: Read, old: str, new: str, sentence: str) -> None:
    text = pipeline("argo.yaml").text
    with pytest.raises(BadInputError, match=sentence):
        pipeline(text.replace(old, new))
