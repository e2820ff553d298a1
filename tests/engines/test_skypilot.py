"""SkyPilot's task file, read by SkyPilot's own parser."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from trimtab.core import BadInputError, Configuration, Offer, Workload
from trimtab.engines import job_file

Configure = Callable[..., Configuration]

# Runs in SkyPilot's interpreter: reads files named as arguments, with every name lookup refused.
_PARSE = """
import json, pathlib, socket, sys, yaml
def refuse(*arguments, **options):
    raise OSError("the parser went to the network")
socket.getaddrinfo = refuse
import sky
answers = []
for path in sys.argv[1:]:
    task = sky.Task.from_yaml_config(yaml.safe_load(pathlib.Path(path).read_text("utf-8")))
    (resources,) = task.resources
    answers.append({"name": task.name, "nodes": task.num_nodes, "run": task.run,
        "cloud": str(resources.cloud).lower(), "region": resources.region, "spot": resources.use_spot,
        "instance": resources.instance_type, "accelerators": resources._accelerators})
print(json.dumps(answers))
"""

COMMAND = ("python", "train.py", "--note", "it's\n ünusual: #$(x)")


def test_skypilot_reads_every_file(configuration: Configure, skypilot_python: Path, tmp_path: Path) -> None:
    configurations = [
        configuration("a100", nodes=2, spot=True),
        configuration("trainium"),
        configuration("azure"),
        configuration("amd"),
        configuration("attached", nodes=4, spot=True),
        configuration("h100"),
        configuration("cpu", nodes=3),
        configuration("tpu"),
    ]
    texts = [
        job_file("skypilot", Workload("Ünusual --- näme__", command=COMMAND), c, expected_seconds=4000.0)
        for c in configurations
    ]
    paths = [tmp_path / f"{index}.yaml" for index in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, "utf-8")
    environment = {"HOME": str(tmp_path), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [str(skypilot_python), "-c", _PARSE, *map(str, paths)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    tasks = json.loads(done.stdout.splitlines()[-1])
    for wanted, text, task in zip(configurations, texts, tasks, strict=True):
        offer, asked = wanted.offer, yaml.safe_load(text)["resources"]
        name, _, count = asked.get("accelerators", "").partition(":")
        assert task == {
            "name": "nusual-n-me",
            "nodes": wanted.nodes,
            "run": yaml.safe_load(text)["run"],
            "cloud": offer.cloud,
            "region": offer.region,
            "spot": wanted.spot,
            "instance": asked.get("instance_type"),
            "accelerators": {name: int(count)} if name else None,
        }


def test_an_attached_accelerator_is_split_from_its_host(configuration: Configure) -> None:
    task = yaml.safe_load(job_file("skypilot", Workload("a", command=COMMAND), configuration("attached")))
    assert task["resources"] == {
        "infra": "gcp/us-central1",
        "instance_type": "n1-standard-8",
        "accelerators": "T4:1",
        "use_spot": False,
    }


def test_a_tpu_slice_brings_its_machine_along(configuration: Configure) -> None:
    task = yaml.safe_load(job_file("skypilot", Workload("a", command=COMMAND), configuration("tpu")))
    assert task["resources"] == {
        "infra": "gcp/us-central1",
        "accelerators": "tpu-v5litepod-8:1",
        "use_spot": False,
    }


def test_a_time_limit_is_kept_by_the_script(configuration: Configure) -> None:
    text = job_file("skypilot", Workload("a", command=COMMAND), configuration("cpu"), max_seconds=600.0)
    assert "exec timeout --kill-after=60 600 python train.py" in yaml.safe_load(text)["run"]


def test_mpirun_starts_on_the_first_node_only(
    configuration: Configure, run_script: Callable[..., list[str]]
) -> None:
    workload = Workload("a", command=("mpirun", "train"))
    run = yaml.safe_load(job_file("skypilot", workload, configuration("a100", nodes=2)))["run"]
    assert run_script(run, SKYPILOT_NODE_RANK="0", SKYPILOT_NODE_IPS="a\nb") == ["mpirun", "train"]
    assert run_script(run, SKYPILOT_NODE_RANK="1", SKYPILOT_NODE_IPS="a\nb") == []


def test_a_cloud_skypilot_does_not_know_is_refused(configuration: Configure) -> None:
    known = configuration("cpu")
    fields = {name: getattr(known.offer, name) for name in Offer.__dataclass_fields__}
    elsewhere = Configuration(Offer(**{**fields, "cloud": "basement"}), 1, 64, False)
    with pytest.raises(BadInputError, match='does not rent from "basement"'):
        job_file("skypilot", Workload("a", command=COMMAND), elsewhere)
