"""The script of a node, under the real torchrun."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import BadInputError, Configuration, Parallelism, Workload
from trimtab.engines.jobfiles.job import JobFile
from trimtab.engines.jobfiles.script import (
    Launcher,
    Rendezvous,
    launcher,
    node_script,
    quote,
    torchrun_arguments,
    with_batch_size,
)

_WORKER = """
import os, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
print(*(os.environ[name] for name in names), *sys.argv[1:], file=open(f"rank-{os.environ['RANK']}", "w"))
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch==2.13.0")
@pytest.mark.parametrize("command", ["python -u worker.py -b 32", "torchrun worker.py -b 32"])
def test_two_nodes_meet_under_torchrun(
    configuration: Callable[..., Configuration], tmp_path: Path, free_port: Callable[[], int], command: str
) -> None:
    (tmp_path / "worker.py").write_text(_WORKER)
    job = JobFile(Workload("a", command=tuple(command.split())), configuration("cpu", nodes=2))
    script = node_script(job, Rendezvous('"$PLACE"', "127.0.0.1", str(free_port()), workers="2"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    nodes = [
        subprocess.Popen(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "PLACE": rank},
            stderr=subprocess.PIPE,
        )
        for rank in ("0", "1")
    ]
    for node in nodes:
        _, errors = node.communicate(timeout=60)
        assert node.returncode == 0, errors.decode()
    said = [(tmp_path / f"rank-{rank}").read_text() for rank in range(4)]
    assert said == [f"{rank} {rank % 2} 4 -b 64\n" for rank in range(4)]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py", Launcher.TORCHRUN),
        ("python3.11 -u -X dev train.py", Launcher.TORCHRUN),
        ("/opt/venv/bin/python -m package.train", Launcher.TORCHRUN),
        ("python -c pass", Launcher.COMMAND),
        ("python -", Launcher.COMMAND),
        ("python", Launcher.COMMAND),
        ("python -m torch.distributed.run train.py", Launcher.COMMAND),
        ("torchrun --nproc-per-node 2 train.py", Launcher.COMMAND),
        ("accelerate launch train.py", Launcher.COMMAND),
        ("./train.sh", Launcher.COMMAND),
        ("mpirun -np 8 python train.py", Launcher.FIRST_NODE),
    ],
)
def test_torchrun_comes_only_before_python_programs(command: str, expected: Launcher) -> None:
    assert launcher(tuple(command.split()), devices=8) is expected
    assert launcher(tuple(command.split()), devices=1) is Launcher.NONE


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py --x", "train.py --x"),
        ("python3 -m package.train", "-m package.train"),
        ("python -u train.py", "--no-python python -u train.py"),
        ("/opt/venv/bin/python train.py", "--no-python /opt/venv/bin/python train.py"),
    ],
)
def test_an_interpreters_path_and_options_are_kept(command: str, expected: str) -> None:
    assert torchrun_arguments(tuple(command.split())) == tuple(expected.split())


WORD = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@settings(max_examples=60, deadline=None)
@given(st.lists(WORD, max_size=4))
def test_bash_reads_back_every_word(words: list[str]) -> None:
    line = " ".join(map(quote, words))
    done = subprocess.run(
        ["bash", "-c", rf'printf "%s\0" x {line}'], capture_output=True, check=True, env={"LC_ALL": "C"}
    )
    assert done.stdout.decode().split("\0")[1:-1] == words


@given(WORD)
def test_a_quoted_word_is_printable_and_on_one_line(word: str) -> None:
    assert quote(word).isprintable()


def test_bytes_that_are_not_text_survive() -> None:
    assert quote("a\udcff") == r"$'a\377'"


@pytest.mark.parametrize("word", ["a\0b", "a\ud800"])
def test_what_no_program_can_be_given_is_refused(word: str) -> None:
    with pytest.raises(BadInputError):
        quote(word)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("--batch-size 32", "--batch-size 64"),
        ("--batch_size=32", "--batch_size=64"),
        ("-b 32", "-b 64"),
        ("-b32", "-b64"),
        ("--per_device_train_batch_size 8", "--per_device_train_batch_size 64"),
        ("--train-batch-size 8 --batch-size 4", "--train-batch-size 64 --batch-size 64"),
    ],
)
def test_an_option_gets_the_configurations_value(before: str, after: str) -> None:
    command, found = with_batch_size(("python", "train.py", *before.split()), 64)
    assert command == ("python", "train.py", *after.split())
    assert found


@pytest.mark.parametrize(
    "words", ["--epochs 3", "--batch-size auto", "--batch-size", "--batch-sizes 3", "-be 3"]
)
def test_a_command_without_one_stays_as_it_is(words: str) -> None:
    before = ("python", "-b", "train.py", *words.split())
    assert with_batch_size(before, 64) == (before, False)


def test_a_script_learns_how_to_spread_its_model(configuration: Callable[..., Configuration]) -> None:
    spread = Parallelism("full", recompute=True)
    job = JobFile(Workload("llm", command=("probe",)), replace(configuration("h100"), parallel=spread))
    script = node_script(job, Rendezvous("0", "127.0.0.1"))
    lines = [line.removeprefix("export ") for line in script.splitlines() if line.startswith("export ")]
    variables = dict(line.split("=", 1) for line in lines)
    assert variables["TRIMTAB_SHARDING"] == "full"
    assert variables["TRIMTAB_CHECKPOINTING"] == "1"
    assert variables["FSDP_SHARDING_STRATEGY"] == "FULL_SHARD"
    plain = node_script(
        JobFile(Workload("llm", command=("probe",)), configuration("h100")), Rendezvous("0", "127.0.0.1")
    )
    assert "TRIMTAB" not in plain.replace("TRIMTAB_BATCH_SIZE", "")
