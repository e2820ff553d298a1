"""Our own file."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from trimtab.core import BadInputError
from trimtab.pipelines import Asked, Pipeline, Request, write_requests

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
    assert load.asked == Asked(0.5, 4 * 2**30)
    assert train.asked == Asked(accelerator="T4", accelerators=2)


def test_new_requests_stand_in_the_stages(pipeline: Read) -> None:
    read = pipeline(TEXT)
    requests = {"load": Request(0.25, 2**28), "train": Request(1.5, 2**31, "", 0)}
    text, _ = write_requests(read, requests)
    train, load = yaml.safe_load(text)["stages"]
    assert load["resources"] == {"cpu": "250m", "memory": "256Mi"}
    assert train["resources"] == {"cpu": "1500m", "memory": "2Gi"}
    assert "accelerator" not in train


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("stages: []", "has no stages"),
        ("stages: 3", "has no stages"),
        ("stages: [load]", r"stages\[1\] is 'load'; it should be a stage such as"),
        ("stages: [{command: a}]", r"stages\[1\]\.name is None"),
        ("stages: [{name: a}]", r"stages\[1\]\.command is None; it should be a line"),
        ("stages: [{name: a, command: b, cpu: 2}]", 'there is no "cpu" here'),
        ("stages: [{name: a, command: b, resources: {cpu: lots}}]", "resources.cpu is lots; .* quantity"),
        ("stages: [{name: a, command: b, accelerator: 2}]", "accelerator is 2; .* such as T4:1"),
        ("stages: [{name: a, command: b, after: {c: d}}]", "after is "),
        ("stages: [{name: a, command: b, after: [b]}, {name: b, command: b, after: a}]", "in a circle"),
    ],
)
def test_a_mistake_is_told_with_its_place(pipeline: Read, text: str, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        pipeline(text)
