"""`trimtab predict` as a user meets it."""

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trimtab.predict.fewshot.foundation import SHIPPED
from trimtab.store import open_store

Trimtab = Callable[..., Any]

ONE_RUN = """\
application: thumbnails
environment: lambda
observations:
  - {memory: 512MB, time: 240ms, cpu_user: 60ms, cpu_system: 4ms, memory_used: 80MB}
"""
TWO_CLUSTERS = """\
environment: ec2
observations:
  - {configuration: c4.large nodes=10, time: 20m}
  - {configuration: m4.2xlarge nodes=10, time: 11m}
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "app.yaml"
    path.write_text(ONE_RUN, encoding="utf-8")
    return path


def _kept() -> int:
    with open_store() as store:
        return len(store.ledger.list())


def test_the_table_shows_every_size_with_range_cost_and_both_answers(trimtab: Trimtab, app: Path) -> None:
    called = trimtab("predict", "--app", str(app))
    assert called.status == 0
    assert "thumbnails" in called.out
    assert re.search(r"512MB +240 ms +measured", called.out)
    for size in (128, 256, 1024, 2048, 3008):
        time = r"[\d.]+ m?s"
        assert re.search(rf"{size}MB +{time} +{time} to {time} +\$[\d.]+ +{time} +{time}", called.out)
    assert "The model answers: in the backtest" in called.out
    assert re.search(r"decision \w{12}: \d+MB is the cheapest", called.out)
    assert "cpus=" not in called.out


def test_the_table_fits_a_narrow_terminal(
    trimtab: Trimtab, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = trimtab("predict", "--app", str(app)).out
    assert re.search(r"512MB .* measured", out)
    assert re.search(r"1024MB +[\d.]+ ms +[\d.]+ ms to [\d.]+ ms +\$[\d.]+ ", out)


@pytest.mark.parametrize("told", [ONE_RUN, TWO_CLUSTERS], ids=["function", "clusters"])
def test_sixty_columns_are_enough(
    trimtab: Trimtab, app: Path, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    app.write_text(told, encoding="utf-8")
    lines = trimtab("predict", "--app", str(app)).out.splitlines()
    known = next(number for number, line in enumerate(lines) if "measured" in line)
    assert re.match(r"(512MB|c4.large nodes=10) +\d+ ?m.* measured +\$[\d.]+", lines[known])
    assert "…" not in "".join(lines)
    assert max(map(len, lines)) <= 62


def test_what_the_best_and_what_any_answer_is_made_of_is_said(trimtab: Trimtab, app: Path) -> None:
    best = trimtab("predict", "--app", str(app)).out
    where = re.search(r"(\d+MB) is the cheapest", best)
    assert where
    assert f"\n{where[1]} takes " in best
    asked = trimtab("predict", "--app", str(app), "--at", "1GB", "--explain", "1.5GB").out
    assert re.search(
        r"\n1536MB takes [\d.]+ ms:\n  measured at 512MB +\+240 ms\n  at 1536MB instead +-[\d.]+ ms\n", asked
    )
    assert re.search(r"costs \$[\d.]+ for 1M: \$[\d.]+ for time, \$0\.20 for requests\n", asked)
    assert (
        "512MB takes 240 ms, as measured" in trimtab("predict", "--app", str(app), "--explain", "512MB").out
    )


def test_a_report_is_written_and_nothing_where_it_cannot_be(
    trimtab: Trimtab, app: Path, tmp_path: Path
) -> None:
    page = tmp_path / "new" / "report.html"
    called = trimtab("predict", "--app", str(app), "--html", str(page))
    assert called.status == 0
    assert f"report: {page}" in called.out
    kept = re.search(r"decision (\w{12})", called.out)
    assert kept
    assert f"Decision {kept[1]}." in page.read_text(encoding="utf-8")
    before = _kept()
    refused = trimtab("predict", "--app", str(app), "--html", str(tmp_path))
    assert (refused.status, refused.out, _kept()) == (2, "", before)
    assert "is a folder; name a file" in refused.error


def test_the_same_size_asked_twice_is_shown_once(trimtab: Trimtab, app: Path) -> None:
    out = trimtab("predict", "--app", str(app), "--at", "1GB,1024MB,1GiB").out
    assert len(re.findall(r"^1024MB ", out, re.MULTILINE)) == 1


def test_json_is_one_object_with_a_prediction_for_each_size(trimtab: Trimtab, app: Path) -> None:
    called = trimtab("predict", "--app", str(app), "--at", "128MB, 1GB,", "--json")
    assert called.status == 0
    answer = json.loads(called.out)
    assert answer.keys() == {
        "decision",
        "application",
        "environment",
        "chosen_by",
        "reason",
        "unlikeness",
        "distance_score",
        "most_alike",
        "rule",
        "best",
        "predictions",
    }
    assert answer["chosen_by"] in ("model", "rule")
    assert [line["configuration"] for line in answer["predictions"]] == ["512MB", "128MB", "1024MB"]
    assert [line["known"] for line in answer["predictions"]] == [True, False, False]
    for line in answer["predictions"]:
        assert line.keys() == {
            "configuration",
            "known",
            "time",
            "cost",
            "price",
            "rule_seconds",
            "model_seconds",
            "contributions",
        }
        for quantity, unit in (("time", "s"), ("cost", "$")):
            assert line[quantity]["low"] <= line[quantity]["value"] <= line[quantity]["high"]
            assert line[quantity]["unit"] == unit
        if not line["known"]:
            assert sum(line["contributions"].values()) == pytest.approx(line["time"]["value"])
    with open_store() as store:
        assert store.ledger.get(answer["decision"]).subject == "thumbnails"


def test_the_ledger_shows_it_with_rule_and_model(trimtab: Trimtab, app: Path) -> None:
    id = json.loads(trimtab("predict", "--app", str(app), "--json").out)["decision"]
    listed = trimtab("decisions").out
    assert id in listed
    assert re.search(r"memory=\d+MB", listed)
    shown = trimtab("decisions", id).out
    assert re.search(r"rule +rule:CPU share: memory=\d+MB, seconds=[\d.]+", shown)
    assert re.search(r"model +trimtab: memory=\d+MB, seconds=[\d.]+", shown)
    assert "cheapest of 6 in lambda" in shown
    assert "cpus=" not in shown
    assert trimtab("outcome", id, "--time", "1s").status == 0


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_what_is_not_to_be_kept_is_not(trimtab: Trimtab, app: Path, more: list[str]) -> None:
    called = trimtab("predict", "--app", str(app), "--no-keep", *more)
    assert called.status == 0
    assert "decision " not in called.out
    assert _kept() == 0


def test_clusters_are_predicted_with_what_one_run_costs(trimtab: Trimtab, tmp_path: Path) -> None:
    path = tmp_path / "join.yaml"
    path.write_text(TWO_CLUSTERS, encoding="utf-8")
    called = trimtab("predict", "--app", str(path), "--at", "c4.xlarge nodes=10")
    assert re.search(r"c4.large nodes=10 +20m +measured +\$0\.33", called.out)
    assert re.search(r"c4.xlarge nodes=10 +\S+ +\S+ to \S+ +\$\d\.\d\d ", called.out)
    assert "join" in called.out
    answer = json.loads(trimtab("predict", "--app", str(path), "--json").out)
    assert len(answer["predictions"]) == 69
    assert all(line["cost"]["value"] > 0 for line in answer["predictions"])


def test_where_nothing_is_charged_there_is_no_cost(trimtab: Trimtab, app: Path) -> None:
    app.write_text(ONE_RUN.replace("lambda", "openwhisk"), encoding="utf-8")
    called = trimtab("predict", "--app", str(app))
    assert "$" not in called.out
    assert "is the fastest" in called.out


def test_what_is_unlike_anything_is_answered_by_the_rule_that_says_so(trimtab: Trimtab, app: Path) -> None:
    app.write_text("observations: [{memory: 512MB, time: 300d}]", encoding="utf-8")
    out = trimtab("predict", "--app", str(app)).out
    assert "The rule answers: nothing like this was learned from" in out


def test_a_name_that_looks_like_markup_is_printed_as_it_is(trimtab: Trimtab, app: Path) -> None:
    app.write_text(ONE_RUN.replace("thumbnails", '"[red]x[/blue]"'), encoding="utf-8")
    assert "[red]x[/blue]" in trimtab("predict", "--app", str(app)).out


@pytest.mark.parametrize(
    ("told", "arguments", "sentence"),
    [
        (None, [], "yaml"),
        ("- 1", [], "odd.yaml"),
        ("observations: [", [], "YAML"),
        (ONE_RUN.replace("lambda", "moon"), [], '"moon"'),
        ("environment: lambda", [], "observations"),
        (ONE_RUN.replace("240ms", "-240ms"), [], "observations[0].time is '-240ms'"),
        (ONE_RUN.replace("240ms", "0"), [], "observations[0].time is 0"),
        (ONE_RUN.replace("512MB", "some"), [], '"some"'),
        (ONE_RUN.replace("cpu_user: 60ms", "context_switches: -1"), [], "context_switches is -1"),
        (ONE_RUN + "  - {memory: 512MB, time: 3s}\n", [], "240 ms and 3 s"),
        (ONE_RUN, ["--at", "512MB"], "512MB"),
        (ONE_RUN, ["--at", ","], "all"),
        (ONE_RUN, ["--at", ""], "all"),
        (ONE_RUN, ["--at", "0MB"], '"0MB"'),
        (ONE_RUN, ["--at", "-1GB"], '"-1GB"'),
        (ONE_RUN, ["--at", "1e9GB"], '"1e9GB"'),
        (ONE_RUN, ["--at", "1024"], "1024MB"),
        (ONE_RUN, ["--explain", "huge"], '"huge"'),
        ("", [], "odd.yaml"),
        (ONE_RUN.replace("240ms", ".inf"), [], "observations[0].time is inf"),
        (ONE_RUN.replace("240ms", ".nan"), [], "observations[0].time is nan"),
        (ONE_RUN.replace("time", "tiem"), [], "time"),
        (ONE_RUN.replace("lambda", "lamda"), [], '"lamda"'),
        (TWO_CLUSTERS, ["--at", "c4.xlarge node=10"], "c4.xlarge nodes=10"),
        (ONE_RUN, ["--at", "large"], '"large"'),
        (TWO_CLUSTERS, ["--at", "abacus"], '"abacus"'),
        (ONE_RUN, ["--weights", "nowhere"], "there are no weights at nowhere"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_kept(
    trimtab: Trimtab, tmp_path: Path, told: str | None, arguments: list[str], sentence: str
) -> None:
    path = tmp_path / "odd.yaml"
    if told is not None:
        path.write_text(told, encoding="utf-8")
    called = trimtab("predict", "--app", str(path), *arguments)
    assert called.status == 2
    assert called.out == ""
    assert called.error.startswith("trimtab: ")
    assert sentence in called.error
    assert called.error.count("\n") == 1
    assert _kept() == 0


@pytest.mark.parametrize("content", [b"", b"environment: lambda\n", b"\x08" + b"\x00" * 7 + b"{}      "])
def test_weights_that_are_none_are_one_sentence(
    trimtab: Trimtab, app: Path, tmp_path: Path, content: bytes
) -> None:
    weights = tmp_path / "weights"
    weights.write_bytes(content)
    called = trimtab("predict", "--app", str(app), "--weights", str(weights))
    assert called.status == 2
    assert called.error.startswith(f"trimtab: {weights} ")
    assert called.error.count("\n") == 1


def test_weights_of_another_schema_or_with_a_flipped_bit_are_one_sentence(
    trimtab: Trimtab, app: Path, tmp_path: Path
) -> None:
    good = SHIPPED.read_bytes()
    place = good.index(b'"schema":"') + 10
    other = good[:place] + b"0" * 12 + good[place + 12 :]
    flipped = good[:-1000] + bytes([good[-1000] ^ 1]) + good[-999:]
    weights = tmp_path / "weights"
    for content, sentence in ((other, "another schema"), (flipped, "damaged"), (good[:9999], "damaged")):
        weights.write_bytes(content)
        called = trimtab("predict", "--app", str(app), "--weights", str(weights))
        assert (called.status, called.out) == (2, "")
        assert sentence in called.error
        assert called.error.count("\n") == 1
    assert _kept() == 0


def test_help_has_a_function_and_a_cluster_as_examples(trimtab: Trimtab) -> None:
    out = trimtab("predict", "--help").out
    assert "trimtab predict --app thumbnailer.yaml --at 128MB,1GB,2GB" in out
    assert "- configuration: c4.large nodes=10" in out
    assert "trimtab predict --app join.yaml --html report.html" in out


def test_help_shows_the_file_line_by_line_in_a_narrow_terminal(
    trimtab: Trimtab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    called = trimtab("predict", "--help")
    assert called.status == 0
    lines = [line.rstrip() for line in called.out.splitlines()]
    first = next(number for number, line in enumerate(lines) if "observations:" in line)
    margin = lines[first].index("observations:")
    assert [line[margin:] for line in lines[first - 1 : first + 5]] == [
        "environment: lambda",
        "observations:",
        "  - memory: 512MB",
        "    time: 240ms",
        "    cpu_user: 60ms",
        "    memory_used: 80MB",
    ]


def test_predicting_waits_for_nothing_that_only_learning_needs(app: Path) -> None:
    heavy = ("scipy", "sklearn", "torch", "lightgbm", "plotly", "sqlalchemy")
    code = (
        "import sys\n"
        "from trimtab.cli import main\n"
        "try:\n    main()\n"
        f"except SystemExit: pass\nprint([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    arguments = ("predict", "--app", str(app), "--no-keep")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.returncode == 0
    assert result.stderr.strip() == "[]"
    # CPU time, which a busy machine does not add to.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.5
