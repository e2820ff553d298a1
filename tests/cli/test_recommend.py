"""`trimtab recommend` as a user meets it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab.core import Profile, Workload, to_plain
from trimtab.observe import save_profile
from trimtab.store import open_store

Trimtab = Callable[..., Any]


@pytest.fixture
def profile_file(make_profile: Callable[..., Profile], tmp_path: Path) -> Path:
    path = tmp_path / "profile.json"
    save_profile(make_profile(), path)
    return path


def test_the_table_shows_time_cost_ranges_and_the_decision(trimtab: Trimtab, profile_file: Path) -> None:
    called = trimtab("recommend", str(profile_file), "--top", "3")
    assert called.status == 0
    assert "10 epochs of 100,000 samples, as the script showed" in called.out
    assert re.search(r"1 +\S+ +1×\S+ +\S+ +\$[\d.]+", called.out)
    assert re.search(r"\$[\d.]+/h +\S+–\S+", called.out)
    assert re.search(r"\S+–\S+ +\$[\d.]+–\$[\d.]+", called.out)
    decision = re.search(r"trimtab decisions (\w{12})", called.out)
    assert decision
    with open_store() as store:
        assert store.ledger.get(decision[1]).subject == "resnet50"


def test_the_table_shows_its_evidence_where_there_is_room(
    trimtab: Trimtab, profile_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    lines = trimtab("recommend", str(profile_file), "--max-nodes", "4", "--spot", "--batch-size", "32,64").out
    assert "evidence" in lines
    assert lines.count("memory: model") == 10
    assert "…" not in lines
    rows = [line for line in lines.splitlines() if re.match(r" ?\d+ +\S", line)]
    assert len(rows) == 10
    assert all(re.search(r" rule *$", row) for row in rows)


def test_json_is_one_object_with_rows_and_reasons(trimtab: Trimtab, profile_file: Path) -> None:
    answer = json.loads(trimtab("recommend", str(profile_file), "--json", "--top", "4").out)
    assert len(answer["rows"]) == 4
    first = answer["rows"][0]
    assert first["time"]["low"] <= first["time"]["value"] <= first["time"]["high"]
    assert first["bound"].endswith("-bound")
    assert answer["decision"]


def test_the_latest_profile_is_taken_without_a_name_and_any_by_its_id(
    trimtab: Trimtab, make_profile: Callable[..., Profile]
) -> None:
    with open_store() as store:
        store.profiles.save(make_profile("vgg16"))
    assert "vgg16" in trimtab("recommend").out
    assert "vgg16" in trimtab("recommend", "profile-v").out


def test_without_any_profile_it_says_how_to_make_one(trimtab: Trimtab) -> None:
    called = trimtab("recommend")
    assert called.status == 2
    assert "profile" in called.error
    assert "Traceback" not in called.error


def test_explain_says_why_a_row_is_where_it_is(trimtab: Trimtab, profile_file: Path) -> None:
    out = trimtab("recommend", str(profile_file), "--explain", "2", "--top", "1").out
    assert "Row 2:" in out
    assert "evidence:" in out


def test_an_outcome_changes_the_next_recommendation_and_both_answers_are_shown(
    trimtab: Trimtab, profile_file: Path
) -> None:
    def ask() -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            trimtab("recommend", str(profile_file), "--accelerator", "A10G", "--json").out
        )
        return answer

    first = ask()
    took = 1.4 * first["rows"][0]["time"]["value"]
    assert trimtab("outcome", first["decision"], "--time", f"{took}s").status == 0
    second = ask()
    assert first["rows"][0]["time"]["value"] < second["rows"][0]["time"]["value"] < took
    assert second["rows"][0]["rule"]["time"] == first["rows"][0]["time"]
    assert first["rows"][0]["evidence"] == {"time": "rule", "cost": "rule", "memory": "model"}
    assert second["rows"][0]["evidence"] == {"time": "outcomes", "cost": "outcomes", "memory": "model"}
    shown = trimtab("decisions", second["decision"]).out
    for part in ("chosen by    model:corrected", "rule         rule:analytic", "(time ", "1 earlier outcome"):
        assert part in shown
    explained = trimtab("recommend", str(profile_file), "--accelerator", "A10G", "--explain", "1").out
    assert "note: time: the model answers: 1 earlier outcome of this workload" in explained
    assert "outcomes of earlier runs" in explained.replace("\n", " ")
    assert "  rule: time " in explained
    assert "  model: time " in explained


def test_emitting_twice_keeps_one_decision(trimtab: Trimtab, profile_file: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        called = trimtab("recommend", str(profile_file), "--emit", "skypilot", "-o", str(tmp_path / name))
        assert called.status == 0
    with open_store() as store:
        assert len(store.ledger.list(kind="recommend")) == 1
    assert (tmp_path / "first").read_text() == (tmp_path / "second").read_text()


@pytest.mark.parametrize("target", ["skypilot", "kubernetes", "slurm"])
def test_emit_writes_a_job_file_for_the_row(
    trimtab: Trimtab, profile_file: Path, tmp_path: Path, target: str
) -> None:
    file = tmp_path / "job"
    called = trimtab("recommend", str(profile_file), "--emit", target, "--row", "2", "-o", str(file))
    assert called.status == 0
    assert str(file) in called.out.replace("\n", "")
    text = file.read_text(encoding="utf-8")
    assert "train.py" in text
    if target != "slurm":
        assert all(isinstance(document, dict) for document in yaml.safe_load_all(text))


def test_vertex_is_written_for_google_and_refused_elsewhere(
    trimtab: Trimtab, profile_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "job.json"
    name = str(profile_file)
    assert trimtab("recommend", name, "--cloud", "gcp", "--emit", "vertex", "-o", str(file)).status == 0
    assert json.loads(file.read_text(encoding="utf-8"))["workerPoolSpecs"]
    refused = trimtab("recommend", name, "--cloud", "aws", "--emit", "vertex", "-o", str(tmp_path / "no"))
    assert refused.status == 2
    assert "--cloud gcp" in refused.error
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--cloud", "nimbus"], '"nimbus"'),
        (["--deadline", "1s"], "the deadline of 1 s"),
        (["--deadline", "soon"], '"soon"'),
        (["--budget", "lots"], '"lots"'),
        (["--objective", "luck"], '"luck"'),
        (["--accelerator", "Z9000"], '"Z9000"'),
        (["--batch-size", "many"], '"many"'),
        (["--batch-size", "0"], "sample"),
        (["--precision", "fp7"], '"fp7"'),
        (["--emit", "fax"], "fax"),
        (["--row", "9999"], "9999"),
        (["--explain", "0"], "row 0"),
        (["--max-nodes", "0"], "--max-nodes is 0"),
        (["--epochs", "-1"], "--epochs"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_decided(
    trimtab: Trimtab, profile_file: Path, arguments: list[str], sentence: str
) -> None:
    called = trimtab("recommend", str(profile_file), *arguments)
    assert called.status == 2
    assert called.out == ""
    assert called.error.startswith("trimtab: ")
    assert sentence in called.error
    assert called.error.count("\n") == 1
    with open_store() as store:
        assert store.ledger.list() == ()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "odd.json"),
        ("", "profile"),
        ('{"version": 1, "workload"', "cut off"),
        ('{"menu": "soup"}', "odd.json"),
        ("[1, 2]", "odd.json"),
        ("\x00\x01", "profile"),
    ],
)
def test_a_file_that_is_no_profile_is_refused(
    trimtab: Trimtab, tmp_path: Path, content: str | None, sentence: str
) -> None:
    path = tmp_path / "odd.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    called = trimtab("recommend", str(path))
    assert called.status == 2
    assert sentence in called.error
    assert "Traceback" not in called.error


def test_a_profile_of_a_future_version_is_refused(
    trimtab: Trimtab, tmp_path: Path, make_profile: Callable[..., Profile]
) -> None:
    path = tmp_path / "future.json"
    path.write_text(json.dumps({**to_plain(make_profile()), "version": 99}), encoding="utf-8")
    called = trimtab("recommend", str(path))
    assert called.status == 2
    assert "99" in called.error


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize("how", ["ro", "full"])
def test_a_home_that_cannot_be_written_is_one_sentence(profile_file: Path, tmp_path: Path, how: str) -> None:
    home = tmp_path / "mount"
    home.mkdir()
    options = "size=64k" if how == "full" else "size=1m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(home)], check=True)
    try:
        if how == "ro":
            subprocess.run(["mount", "-o", "remount,ro", str(home)], check=True)
        else:
            (home / "filler").write_bytes(b"x" * 60_000)
        result = subprocess.run(
            [sys.executable, "-c", "from trimtab.cli import main; main()", "recommend", str(profile_file)],
            env={**os.environ, "TRIMTAB_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        subprocess.run(["umount", str(home)], check=True)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("trimtab: ")
    assert result.stderr.count("\n") == 1


def test_a_report_that_cannot_be_written_leaves_no_half_of_it(
    trimtab: Trimtab, profile_file: Path, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way", encoding="utf-8")
    called = trimtab("recommend", str(profile_file), "--html", str(blocked / "report.html"))
    assert called.status == 2
    assert "cannot be written" in called.error
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "home") == ["file", "profile.json"]


def test_a_name_that_looks_like_markup_is_printed_as_it_is(
    trimtab: Trimtab, tmp_path: Path, make_profile: Callable[..., Profile]
) -> None:
    odd = replace(make_profile(), workload=Workload("[red]net[/blue]", command=("python", "x.py")))
    save_profile(odd, tmp_path / "odd.json")
    assert "[red]net[/blue]" in trimtab("recommend", str(tmp_path / "odd.json")).out
    assert "[red]net[/blue]" in trimtab("decisions").out


def test_a_much_slower_outcome_widens_the_range_and_trust_makes_it_count(
    trimtab: Trimtab, profile_file: Path
) -> None:
    def ask() -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            trimtab("recommend", str(profile_file), "--accelerator", "A10G", "--top", "1", "--json").out
        )
        return answer

    first = ask()
    took = 8 * first["rows"][0]["time"]["value"]
    assert trimtab("outcome", first["decision"], "--time", f"{took}s").status == 0
    second = ask()["rows"][0]
    assert second["time"]["value"] == pytest.approx(first["rows"][0]["time"]["value"])
    assert second["time"]["high"] > 0.9 * took > first["rows"][0]["time"]["high"]
    assert trimtab("outcome", first["decision"], "--time", f"{took}s", "--trust").status == 0
    assert ask()["rows"][0]["time"]["value"] > 0.5 * took


def test_the_emitted_file_tells_the_script_how_to_spread_its_model(
    trimtab: Trimtab, profile_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    called = trimtab(
        *("recommend", str(profile_file), "--accelerator", "A100", "--parallel", "fsdp", "--top", "2"),
        *("--emit", "skypilot", "-o", str(path)),
    )
    assert called.status == 0, called.error
    assert "FSDP" in called.out
    assert "export TRIMTAB_SHARDING=full" in yaml.safe_load(path.read_text())["run"]


@pytest.mark.parametrize("columns", ["80", "120"])
def test_energy_and_layouts_fit_the_terminal(
    trimtab: Trimtab, profile_file: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    called = trimtab(
        "recommend", str(profile_file), "--objective", "energy", "--parallel", "fsdp,tensor", "--spot"
    )
    assert "energy" in called.out.splitlines()[1]
    table = [line for line in called.out.splitlines() if re.match(r" ?\d+ +\S", line)]
    assert len(table) == 10
    assert max(len(line) for line in table) <= int(columns)
