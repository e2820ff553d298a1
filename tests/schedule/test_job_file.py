"""Job files: what can be written, and one sentence about what cannot."""

import re
from pathlib import Path

import pytest
from job_texts import parse_jobs

from trimtab.core import BadInputError, Kind, Workload
from trimtab.schedule import (
    Checkpoint,
    Job,
    JobData,
    Priority,
    Submission,
    Worker,
    read_job_documents,
    submissions,
)

FULL = """
name: resnet50
tenant: vision
kind: training
command: python train.py --name 'two words'
resources: {gpus: 2..16, accelerators: [NVIDIA A100, t4], cpus: 4, memory: 16GiB}
priority: high
deadline: {by: 6h, hard: true}
checkpoint: {signal: sigusr2, interval: 10m, seconds: 20, restart: 45s}
data: {zone: us-east-1a, size: 2TB, nodes: [n1, n2]}
budget: $20
application: resnet
work: 90000
speeds: {a100: 12.5, T4: 3}
environment: {EPOCHS: 90, FAST: true}
pass: [WANDB_API_KEY]
retries: 2
"""
SHORT = "name: a\ncommand: 'true'\n"


def job(text: str) -> Job:
    (found,) = parse_jobs(SHORT + text, "job.yaml")
    return found.job


def test_everything_that_can_be_said_about_a_job() -> None:
    assert parse_jobs(FULL, "job.yaml") == (
        Submission(
            job=Job(
                id="",
                workload=Workload(
                    name="resnet50",
                    kind=Kind.TRAINING,
                    tenant="vision",
                    priority=Priority.HIGH,
                    deadline=21600.0,
                    command=("python", "train.py", "--name", "two words"),
                ),
                submitted=0.0,
                worker=Worker(1.0, 4.0, 16 * 2.0**30, ("a100", "t4")),
                least=2,
                most=16,
                hard=True,
                checkpoint=Checkpoint("USR2", (), 600.0, 20.0, 45.0),
                data=JobData("us-east-1a", 2e12, ("n1", "n2")),
                budget=20.0,
                application="resnet",
                work=90000.0,
                speeds={"a100": 12.5, "t4": 3.0},
            ),
            environment={"EPOCHS": "90", "FAST": "true"},
            passed=("WANDB_API_KEY",),
            retries=2,
        ),
    )


def test_a_name_and_a_command_are_enough() -> None:
    short = job("")
    assert (short.worker, short.least, short.most) == (Worker(gpus=0.0), 1, 1)
    assert short.checkpoint is None
    assert short.application == "a"


@pytest.mark.parametrize(
    ("resources", "gpus", "least", "most"),
    [
        ("resources: {gpus: 8}", 1.0, 8, 8),
        ("resources: {gpus: 2..16}", 1.0, 2, 16),
        ("resources: {gpus: 0}", 0.0, 1, 1),
        ("resources: {gpus: 0.25}", 0.25, 1, 1),
        ("resources: {share: 0.25}\nworkers: 4", 0.25, 4, 4),
        ("resources: {gpus: 8}\nworkers: 2", 4.0, 2, 2),
        ("resources: {gpus: 8..16}\nworkers: 2..4", 4.0, 2, 4),
        ("resources: {accelerators: a100}", 1.0, 1, 1),
        ("resources: {accelerators: 'a100:8'}", 1.0, 8, 8),
        ("resources: {accelerators: ['a100:8', 't4:8']}", 1.0, 8, 8),
        ("resources: {cpus: 2}\nworkers: 3..5", 0.0, 3, 5),
    ],
)
def test_gangs(resources: str, gpus: float, least: int, most: int) -> None:
    asked = job(resources)
    assert (asked.worker.gpus, asked.least, asked.most) == (gpus, least, most)


def test_short_forms() -> None:
    assert job("deadline: 90m").workload.deadline == 5400.0
    assert not job("deadline: 90m").hard
    assert job("checkpoint: USR1").checkpoint == Checkpoint()
    assert job("checkpoint: false").checkpoint is None
    assert job("checkpoint: {command: save --now}").checkpoint == Checkpoint(None, ("save", "--now"))
    assert job("budget: null").budget is None


def test_several_documents_and_settings_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(f"{SHORT}resources: {{cpus: 2}}\n---\n---\nname: b\ncommand: [echo, 1]\nfolder: sub\n")
    documents = read_job_documents(path, ["resources.gpus=4", "tenant=audio"])
    first, second = submissions(documents, str(path))
    assert (first.job.least, first.job.worker.cpus, second.job.least) == (4, 2.0, 4)
    assert {first.job.workload.tenant, second.job.workload.tenant} == {"audio"}
    assert (first.folder, second.folder) == (str(tmp_path), str(tmp_path / "sub"))
    assert second.job.workload.command == ("echo", "1")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("nam: a", ('"nam"', "did you mean name?")),
        ("resources: {gpu: 1}", ('"gpu" in resources', "did you mean gpus?")),
        ("resources: 8", ("resources is 8", "gpus, share, accelerators")),
        ("resources: {gpus: eight}", ("resources.gpus is 'eight'", "2..16")),
        ("resources: {gpus: 16..2}", ("resources.gpus is '16..2'", "2..16")),
        ("resources: {gpus: -1}", ("resources.gpus is -1",)),
        ("resources: {gpus: true}", ("resources.gpus is True",)),
        ("resources: {gpus: 1.5}", ("resources.gpus is 1.5", "from 0.01 to 1")),
        ("resources: {share: 0}", ("resources.share is 0", "from 0.01 to 1")),
        ("resources: {gpus: 2, share: 0.5}", ("resources is", "'gpus': 2", "'share': 0.5")),
        ("resources: {gpus: 2, accelerators: 'a100:4'}", ("resources is", "'a100:4'", "gpus")),
        ("resources: {accelerators: ['a100:4', t4]}", ("resources.accelerators is ['a100:4', 't4']",)),
        ("resources: {accelerators: {a100: 4}}", ("resources.accelerators is {'a100': 4}", "[a100, v100]")),
        ("resources: {gpus: 0, accelerators: a100}", ("resources is", "gpus", "accelerators")),
        ("resources: {gpus: 7}\nworkers: 2", ("workers is 2", "7 accelerators")),
        ("resources: {memory: lots}", ("resources.memory is 'lots'", "16GiB")),
        ("resources: {cpus: .inf}", ("resources.cpus is inf",)),
        ("resources: {cpus: .nan}", ("resources.cpus is nan",)),
        ("workers: 0", ("workers is 0", "2..16")),
        ("priority: hgih", ("priority is 'hgih'", "did you mean high?")),
        ("priority: 7", ("priority is 7", "'low', 'normal', 'high' or 'urgent'")),
        ("kind: game", ("kind is 'game'", "training")),
        ("deadline: soon", ("deadline.by is 'soon'", "90s")),
        ("deadline: -5", ("deadline.by is -5", "90s")),
        ("deadline: {hard: true}", ("deadline.by is missing",)),
        ("deadline: {by: 6h, hard: maybe}", ("deadline.hard is 'maybe'", "true")),
        ("checkpoint: KILL", ("checkpoint.signal is 'KILL'", "USR1")),
        ("checkpoint: {signal: USR1, command: save}", ("checkpoint is", "'USR1'", "'save'")),
        ("checkpoint: {seconds: 0}", ("checkpoint.seconds is 0",)),
        ("checkpoint: {evry: 3}", ('"evry" in checkpoint', "interval")),
        ("data: {zone: a}", ("data.size is missing",)),
        ("data: {size: 1TB, nodes: 7}", ("data.nodes is 7",)),
        ("budget: a lot", ("budget is 'a lot'", "$20")),
        ("work: 0", ("work is 0",)),
        ("speeds: {a100: fast}", ("speeds.a100 is 'fast'",)),
        ("speeds: [1]", ("speeds is [1]",)),
        ("environment: {A: [1]}", ("environment.A is [1]",)),
        ("environment: {a-b: 1}", ("environment has 'a-b'",)),
        ("environment: {WANDB_API_KEY: x}", ("environment has 'WANDB_API_KEY'", "pass: [WANDB_API_KEY]")),
        ("pass: [1]", ("pass is [1]",)),
        ("retries: many", ("retries is 'many'", "whole number")),
        ("tenant: 'a b'", ("tenant is 'a b'",)),
        ("folder: 7", ("folder is 7",)),
        ("command: 'echo \"'", ("command is 'echo \"'", "quotes")),
        ("command: []", ("command is []",)),
        ("command: [[a]]", ("command is [['a']]",)),
        ("command: null", ("command is missing",)),
        ("name: 7", ("name is 7",)),
    ],
)
def test_a_refusal_is_one_sentence_with_path_and_value(text: str, parts: tuple[str, ...]) -> None:
    name = text.partition(":")[0]
    rest = "".join(line for line in SHORT.splitlines(True) if not line.startswith(f"{name}:"))
    with pytest.raises(BadInputError) as raised:
        parse_jobs(rest + text, "job.yaml")
    sentence = str(raised.value)
    assert sentence.startswith("job.yaml")
    assert all(part in sentence for part in parts), sentence
    assert "\n" not in sentence


def test_the_value_of_a_secret_is_not_repeated() -> None:
    with pytest.raises(BadInputError) as raised:
        parse_jobs(SHORT + "environment: {WANDB_API_KEY: hunter2}", "job.yaml")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", ("job.yaml", "name: resnet50")),
        ("---\n---\n", ("job.yaml", "name: resnet50")),
        ("a: [", ("job.yaml", "YAML")),
        ("- a\n- b", ("job.yaml is ['a', 'b']", "name, tenant")),
        ("7", ("job.yaml is 7", "name, tenant")),
        (f"{SHORT}---\nname: b", ("job.yaml, job 2: command is missing",)),
        ("command: 'true'", ("job.yaml: name is missing",)),
        ("!!python/object:os.system {}", ("job.yaml", "YAML")),
        ("a: &a [x, x]\nb: &b [*a, *a]\nname: [*b, *b, *b]", ("job.yaml", '"a"')),
    ],
)
def test_files_without_a_usable_job(content: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(BadInputError) as raised:
        parse_jobs(content, "job.yaml")
    assert all(part in str(raised.value) for part in parts), raised.value
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("setting", ["gpus", "=4", "resources.gpus=[", " = 3"])
def test_settings_that_set_nothing(setting: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(f'"{setting.strip()}"')):
        parse_jobs(SHORT, "job.yaml", [setting])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"none\.yaml"):
        read_job_documents(tmp_path / "none.yaml")
    with pytest.raises(BadInputError, match=re.escape(str(tmp_path))):
        read_job_documents(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInputError, match=r"bytes\.yaml"):
        read_job_documents(tmp_path / "bytes.yaml")
