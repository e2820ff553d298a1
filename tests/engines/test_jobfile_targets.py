"""Job files: every target's own tool reads what is written for it."""

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st
from small_slurm import SmallSlurm

from trimtab.collect import Shape, Spec, TrainingJob
from trimtab.core import BadInputError, Configuration, NotFoundError, Offer, Workload
from trimtab.engines import collection_files, job_file, targets

Configure = Callable[..., Configuration]
RunScript = Callable[..., list[str]]


def expanded(text: str) -> str:
    """What Kubernetes makes of an argument before the container starts, where no variable is known."""
    return re.sub(r"\$(\$|\([^)]*\)|)", lambda m: "$" if m[1] in ("$", "") else m[0], text)


SCRIPTS: dict[str, Callable[[str], str]] = {
    "kubernetes": lambda text: expanded(
        next(yaml.safe_load_all(text))["spec"]["template"]["spec"]["containers"][0]["args"][0]
    ),
    "skypilot": lambda text: yaml.safe_load(text)["run"],
    "slurm": lambda text: text,
    "vertex": lambda text: json.loads(text)["workerPoolSpecs"][-1]["containerSpec"]["args"][0],
}

PLACES = {
    "kubernetes": {"JOB_COMPLETION_INDEX": "1", "MASTER_ADDR": "first", "MASTER_PORT": "29500"},
    "skypilot": {
        "SKYPILOT_NODE_RANK": "1",
        "SKYPILOT_NODE_IPS": "first\nsecond",
        "SKYPILOT_NUM_GPUS_PER_NODE": "8",
    },
    "slurm": {"SLURM_JOB_NODELIST": "x", "SLURM_CPUS_PER_TASK": "4"},
    "vertex": {
        "CLUSTER_SPEC": json.dumps(
            {
                "cluster": {"workerpool0": ["first:29500"], "workerpool1": ["second:29500"]},
                "task": {"type": "workerpool1", "index": 0},
            }
        )
    },
}
"""What each target tells the second of two nodes."""

WORD = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


def test_every_target_is_tried_here() -> None:
    assert set(targets()) == set(SCRIPTS) == set(PLACES)


def test_an_unknown_target_is_told_the_known_ones(configuration: Configure) -> None:
    with pytest.raises(NotFoundError, match="kubernetes, skypilot, slurm, vertex"):
        job_file("nomad", Workload("a", command=("true",)), configuration("cpu"))


@pytest.mark.parametrize("target", targets())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.text(max_size=80), words=st.lists(WORD | st.sampled_from(["$(A)", "$$", "a\r\nb"]), max_size=4)
)
def test_any_name_and_command_round_trips(
    configuration: Configure, run_script: RunScript, target: str, name: str, words: list[str]
) -> None:
    workload = Workload(name, command=("probe", *words, "-b", "1"))
    script = SCRIPTS[target](job_file(target, workload, configuration("cpu"), expected_seconds=60.0))
    assert run_script(script) == ["probe", *words, "-b", "64"]


@pytest.mark.parametrize("target", targets())
def test_the_second_node_starts_torchrun_with_its_place(
    configuration: Configure, run_script: RunScript, target: str
) -> None:
    workload = Workload("a", command=("python", "train.py", "--note", "it's $(here) and $$"))
    script = SCRIPTS[target](job_file(target, workload, configuration("h100", nodes=2)))
    options = "--nnodes 2 --nproc-per-node 8 --node-rank 1 --master-addr first --master-port 29500"
    started = ["torchrun", *options.split(), "train.py", "--note", "it's $(here) and $$"]
    assert run_script(script, **PLACES[target]) == started


@pytest.mark.parametrize("target", targets())
def test_a_single_node_with_several_devices_needs_no_rendezvous(
    configuration: Configure, run_script: RunScript, target: str
) -> None:
    script = SCRIPTS[target](
        job_file(target, Workload("a", command=("python", "t.py")), configuration("h100"))
    )
    started = run_script(script, SKYPILOT_NUM_GPUS_PER_NODE="8")
    assert started == ["torchrun", "--standalone", "--nnodes", "1", "--nproc-per-node", "8", "t.py"]


@pytest.mark.parametrize("target", targets())
def test_a_torchrun_of_the_users_own_learns_the_nodes_from_variables(
    configuration: Configure, run_script: RunScript, target: str
) -> None:
    workload = Workload("a", command=("torchrun", "train.py"))
    script = SCRIPTS[target](job_file(target, workload, configuration("h100", nodes=2)))
    assert run_script(script, **PLACES[target]) == ["torchrun", "train.py"]
    shown = script.replace("exec torchrun train.py", "exec env -0")
    seen = dict(line.split("=", 1) for line in run_script(shown, **PLACES[target]))
    names = ("NNODES", "NPROC_PER_NODE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
    assert [seen[f"PET_{name}"] for name in names] == ["2", "8", "1", "first", "29500"]


@pytest.mark.parametrize("target", targets())
def test_a_command_without_a_batch_size_option_gets_a_variable(configuration: Configure, target: str) -> None:
    text = job_file(target, Workload("a", command=("python", "train.py")), configuration("cpu"))
    assert "export TRIMTAB_BATCH_SIZE=64\n" in SCRIPTS[target](text)
    assert "the script must read this variable" in text
    same = job_file(
        target, Workload("a", command=("python", "train.py")), configuration("cpu"), profiled_batch=64
    )
    assert "TRIMTAB_BATCH_SIZE" not in same


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
    with pytest.raises(BadInputError, match="tiny"):
        list(collection_files(spec, "skypilot"))
    with pytest.raises(NotFoundError, match='"vortex"'):
        list(collection_files(SPEC, "vortex"))


WORKLOAD = Workload("Ünusual\nnäme", command=("python", "train.py", "--note", "it's\r\n $(x)"))


def directives(text: str) -> dict[str, str]:
    """Options as sbatch reads them: only before the first line that is not a comment."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#SBATCH --"):
            option, _, value = line.removeprefix("#SBATCH --").partition("=")
            found[option] = value
        elif line and not line.startswith("#"):
            break
    return found


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("offer", ["a100", "cpu", "amd"])
def test_bash_accepts_every_script(configuration: Configure, offer: str, nodes: int) -> None:
    text = job_file("slurm", WORKLOAD, configuration(offer, nodes=nodes), expected_seconds=4000.0)
    subprocess.run(["bash", "-n"], input=text.encode(), check=True)
    assert text.startswith("#!/bin/bash\n")
    assert "\r" not in text


def test_the_directives_ask_for_the_configuration(configuration: Configure) -> None:
    text = job_file("slurm", WORKLOAD, configuration("a100", nodes=2, spot=True), expected_seconds=90000.0)
    assert directives(text) == {
        "job-name": "nusual-n-me",
        "nodes": "2",
        "ntasks-per-node": "1",
        "cpus-per-task": "86",
        "mem": "1001676M",
        "gres": "gpu:8",
        "time": "2-02:00:00",
        "requeue": "",
    }


def test_mpirun_is_called_once_and_finds_the_nodes_itself(
    configuration: Configure, run_script: Callable[..., list[str]]
) -> None:
    text = job_file("slurm", Workload("a", command=("mpirun", "x")), configuration("a100", nodes=2))
    assert "srun" not in text
    assert run_script(text, SLURM_NODEID="0", SLURM_JOB_NODELIST="x") == ["mpirun", "x"]


@pytest.mark.slow
def test_a_real_slurm_runs_the_script(configuration: Configure, cluster: SmallSlurm, tmp_path: Path) -> None:
    small = configuration("cpu")
    one_cpu = replace(small, offer=replace(small.offer, vcpus=1, memory=2**30))
    said = "it's\n unusual: ü $(x)"
    workload = Workload("Ünusual\nnäme", command=("printf", "%s %s", said, "--batch-size=3"))
    script = tmp_path / "job.sh"
    script.write_text(job_file("slurm", workload, one_cpu, max_seconds=60.0), "utf-8")
    command = ["sbatch", "--wait", f"--output={tmp_path}/out", str(script)]
    environment = cluster.environment
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text("utf-8") == f"{said} --batch-size=64"


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
    with pytest.raises(BadInputError, match='"basement"'):
        job_file("skypilot", Workload("a", command=COMMAND), elsewhere)


VERTEX_WORKLOAD = Workload("Ünusual näme 🚢", command=("python", "train.py", "--note", "it's\n 🚢 $(x)"))

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
    text = job_file("vertex", VERTEX_WORKLOAD, configuration, **options)
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


def test_vertex_splits_an_attached_accelerator_from_its_host(configuration: Configure) -> None:
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
    with pytest.raises(BadInputError, match='"aws"'):
        spec(configuration("a100"))
