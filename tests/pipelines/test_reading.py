"""The pipeline file, and new requests in it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from trimtab.core import BadInputError
from trimtab.pipelines import Pipeline, write_requests
from trimtab.pipelines.pipeline import CurrentRequest, ResourceRequest

Read = Callable[..., Pipeline]
TEXT = """\
stages:
  - {name: train, command: [python, train.py], inputs: [data/raw], accelerator: 'T4:2'}
  - name: load
    command: cp "a b" data/raw
    outputs: [data/raw]
    environment: {SEED: 1}
    resources: {cpu: 500m, memory: 4Gi}
"""


def test_a_stage_waits_for_the_makers_of_its_inputs(pipeline: Read, tmp_path: Path) -> None:
    load, train = pipeline(TEXT).stages
    assert (load.name, train.after) == ("load", ("load",))
    assert load.command == (("sh",), ("-c",), ('cp "a b" data/raw',))
    assert train.command == (("python",), ("train.py",))
    assert train.inputs == load.outputs == (tmp_path / "data" / "raw",)
    assert load.environment == {"SEED": "1"}
    assert load.current == CurrentRequest(0.5, 4 * 2**30)
    assert train.current == CurrentRequest(accelerator="T4", accelerators=2)


def test_new_requests_stand_in_the_stages(pipeline: Read) -> None:
    read = pipeline(TEXT)
    requests = {"load": ResourceRequest(0.25, 2**28), "train": ResourceRequest(1.5, 2**31, "", 0)}
    text, _ = write_requests(read, requests)
    train, load = yaml.safe_load(text)["stages"]
    assert load["resources"] == {"cpu": "250m", "memory": "256Mi"}
    assert train["resources"] == {"cpu": "1500m", "memory": "2Gi"}
    assert "accelerator" not in train


@pytest.mark.parametrize(
    ("text", "place", "value"),
    [
        ("stages: []", "stages", "[]"),
        ("stages: 3", "stages", "3"),
        ("stages: [load]", "stages[0]", "load"),
        ("stages: [{command: a}]", "stages[0].name", "missing"),
        ("stages: [{name: '', command: a}]", "stages[0].name", "''"),
        ("stages: [{name: a}]", "stages[0].command", "missing"),
        ("stages: [{name: a, command: []}]", "stages[0].command", "[]"),
        ("stages: [{name: a, command: b, cpu: 2}]", "stages[0]", '"cpu"'),
        ("stages: [{name: a, command: b, resources: {cpu: lots}}]", "stages[0].resources.cpu", "lots"),
        ("stages: [{name: a, command: b, resources: [2]}]", "stages[0].resources", "[2]"),
        ("stages: [{name: a, command: b, accelerator: 2}]", "stages[0].accelerator", "2"),
        ("stages: [{name: a, command: b, after: {c: d}}]", "stages[0].after", "{'c': 'd'}"),
        ("stages: [{name: a, command: b, environment: [c]}]", "stages[0].environment", "['c']"),
        ("stages: [{name: a, command: b, after: [b]}, {name: b, command: b, after: a}]", "circle", "a → b"),
    ],
)
def test_a_mistake_is_refused_with_its_path_field_and_value(
    pipeline: Read, text: str, place: str, value: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInputError) as refused:
        pipeline(text)
    assert all(part in str(refused.value) for part in (str(tmp_path / "pipeline.yaml"), place, value))
