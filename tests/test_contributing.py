"""The worked examples of CONTRIBUTING.md, applied to a copy of the source, do what the text says."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(
    r"^In (?P<new>the new file )?`(?P<path>[^`]+)`"
    r"(?:, (?P<where>at the end|among the imports|in `(?P<name>\w+)`))?:\n\n```\w+\n(?P<code>.*?)```$",
    re.DOTALL | re.MULTILINE,
)
TRACE = "job,submit_s,duration_s,gpus\na,0,600,4\nb,10,600,4\nc,20,600,4\n"
CLUSTER = "groups: [{name: one, accelerator: T4, nodes: 1, gpus: 4, cpus: 16, memory: 64GiB}]\n"


def edited(text: str, example: "re.Match[str]") -> str:
    """The text of a file with an example's code where the example says."""
    code, where, name = example["code"], example["where"], example["name"]
    if where == "at the end":
        return text + ("\n\n" if example["path"].endswith(".py") else "") + code
    if where == "among the imports":
        at = re.search(r"^from trimtab", text, re.MULTILINE)
    else:
        at = re.search(rf"^class {name}\b.*?(?=^    @)|^{name}\b[^\n]*{{\n", text, re.DOTALL | re.MULTILINE)
    assert at is not None, example["path"]
    place = at.start() if where == "among the imports" else at.end()
    after = "\n" if name and at[0].startswith("class") else ""
    return f"{text[:place]}{code}{after}{text[place:]}"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the source and all examples in it."""
    folder = tmp_path_factory.mktemp("newcomer")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for example in EXAMPLE.finditer(TEXT):
        path = folder / example["path"]
        assert path.exists() is not bool(example["new"]), path
        path.write_text(
            example["code"] if example["new"] else edited(path.read_text(encoding="utf-8"), example), "utf-8"
        )
    return folder


@pytest.fixture
def run(source: Path, tmp_path: Path) -> Any:
    """Runs Python with the changed source; returns what it prints."""
    home = {"TRIMTAB_HOME": str(tmp_path), "PYTHONPATH": str(source / "src"), "COLUMNS": "200"}

    def python(code: str, *words: str) -> str:
        command = [sys.executable, "-c", code, *words]
        done = subprocess.run(
            command, env={**os.environ, **home}, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return python


@pytest.fixture
def trimtab(run: Any) -> Any:
    return lambda *words: run("from trimtab.cli import main; main()", *words)


def test_every_example_takes_three_files_at_most() -> None:
    sections = TEXT[TEXT.index("## Seven worked examples") : TEXT.index("## Other additions")].split("\n### ")
    files = {part.partition("\n")[0]: {m["path"] for m in EXAMPLE.finditer(part)} for part in sections[1:]}
    assert len(files) == 7
    assert all(1 <= len(paths) <= 3 for paths in files.values()), files
    assert sum(len(EXAMPLE.findall(part)) for part in sections) == "".join(sections).count("\n```\n")


def test_the_accelerator_and_the_cloud_are_listed(trimtab: Any) -> None:
    assert "NVIDIA X1 (2027)" in trimtab("catalog", "show", "x1-sxm")
    offers = json.loads(trimtab("catalog", "ls", "--cloud", "stratus", "--json"))
    assert [offer["instance"] for offer in offers] == ["n1.small", "n1.large"]


def test_the_objective_is_in_the_help_and_ranks(trimtab: Any, run: Any) -> None:
    assert "frugal" in trimtab("recommend", "--help")
    code = "from trimtab.core import OBJECTIVES; print(OBJECTIVES['frugal'][0](1.0, 3.0))"
    assert run(code) == "9.0\n"


def test_the_predictor_is_compared_by_the_bench(run: Any) -> None:
    assert (
        run("from trimtab_bench.fewshot import QUICK; print(QUICK['slowest_known'].name)")
        == "slowest known\n"
    )


def test_the_policy_runs_in_the_simulator(trimtab: Any, tmp_path: Path) -> None:
    trace, cluster = tmp_path / "trace.csv", tmp_path / "cluster.yaml"
    trace.write_text(TRACE)
    cluster.write_text(CLUSTER)
    policies = ("--policy", "lifo", "--policy", "lifo:preempt=false")
    shown = json.loads(trimtab("simulate", str(trace), "--cluster", str(cluster), *policies, "--json"))
    restarts = {name: figures["restarts"] for name, figures in shown["policies"].items()}
    assert restarts["lifo"] > restarts["lifo:preempt=false"] == 0
    assert "lifo" in trimtab("simulate", "--help")


def test_the_engine_is_known_by_its_address(run: Any) -> None:
    code = "from trimtab.engines import engine; print(engine('nice://?nodes=2').nodes()[1].name)"
    assert run(code) == "local-2\n"


def test_the_operation_has_a_command_a_route_a_client_and_a_page(trimtab: Any, run: Any) -> None:
    pytest.importorskip("nicegui", reason="needs trimtab[serve]")
    assert trimtab("tenants", "spending").split() == ["tenant", "dollars"]
    code = (
        "from trimtab.serve import Client; from trimtab.serve.http.openapi import document\n"
        "from trimtab.serve.dashboard.pages import PAGES\n"
        "print(document()['paths']['/v1/spending']['get']['operationId'], PAGES[-1].path)\n"
        "print(Client('http://127.0.0.1:9').tenants.spending.args[1].path)"
    )
    assert run(code).split() == ["tenants_spending", "/tenants", "/v1/spending"]
