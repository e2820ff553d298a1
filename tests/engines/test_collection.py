"""A collection's spec as job files: one for every configuration, or a sentence why not."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from trimtab.collect.shapes import Shape, Spec, TrainingJob
from trimtab.core import BadInputError, NotFoundError
from trimtab.engines import collection_files

JOB = TrainingJob("news", "python news.py --batch-size {batch}", Path(), 1000, 2.0, (16, 64))
MACHINE = Shape("standard", 4.0, 15e9, 0.19, ("gcp", "us-central1", "n1-standard-4"))
SPEC = Spec((JOB,), (MACHINE,), (1, 3), "2026-11-15")


def test_every_configuration_is_a_vertex_job_with_its_machines_and_batch() -> None:
    files = {name: json.loads(text) for name, text in collection_files(SPEC, "vertex", "eu.gcr.io/a/b:1")}
    assert sorted(files) == [f"news-standard-b{b}-w{w}.json" for b in (16, 64) for w in (1, 3)]
    pools = files["news-standard-b64-w3.json"]["workerPoolSpecs"]
    assert [pool["replicaCount"] for pool in pools] == [1, 2]
    assert {pool["machineSpec"]["machineType"] for pool in pools} == {"n1-standard-4"}
    assert {pool["containerSpec"]["imageUri"] for pool in pools} == {"eu.gcr.io/a/b:1"}
    assert "news.py --batch-size 64" in pools[0]["containerSpec"]["args"][0]


def test_every_configuration_is_a_skypilot_task() -> None:
    files = dict(collection_files(SPEC, "skypilot"))
    task = yaml.safe_load(files["news-standard-b16-w3.yaml"])
    assert (task["num_nodes"], task["resources"]["instance_type"]) == (3, "n1-standard-4")
    assert "torchrun" in task["run"]


def test_a_shape_that_stands_for_no_machine_is_named() -> None:
    spec = replace(SPEC, shapes=(MACHINE, replace(MACHINE, name="tiny", instance=None)))
    with pytest.raises(BadInputError, match="shape tiny names no machine to rent"):
        list(collection_files(spec, "skypilot"))
    with pytest.raises(NotFoundError, match='no job files for "vortex"'):
        list(collection_files(SPEC, "vortex"))
