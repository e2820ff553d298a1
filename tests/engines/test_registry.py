"""Every target writes every command so that it arrives unchanged."""

import json
import re
from collections.abc import Callable

import pytest
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st

from trimtab.core import Configuration, NotFoundError, Workload
from trimtab.engines import job_file, targets

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
