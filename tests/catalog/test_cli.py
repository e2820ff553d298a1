"""`trimtab catalog` as people use it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trimtab.cli.catalog import catalog_app
from trimtab.core import BadInputError, NotFoundError

PRICES = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region\n"
    "p9.large,Abacus,1,16,128,6,us-east-1\n"
    "bad,,,16,128,-6,us-east-1\n"
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path / "home"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(catalog_app, list(arguments), catch_exceptions=False)


def test_ls_shows_the_cheapest_offers_first() -> None:
    shown = run("ls", "--accelerator", "h100-sxm", "--cloud", "aws", "--limit", "2").output
    first = shown.splitlines()[1]
    assert first.split()[:2] == ["p5.4xlarge", "1×H100"]
    assert "$6.88/h" in first
    assert "aws us-east-1" in shown
    assert "prices of 2026-08-22" in shown
    assert "2 more" in shown


def test_ls_as_json_obeys_every_condition() -> None:
    arguments = (
        "--region us-* --spot --max-price $3/h --min-memory 32GiB --min-accelerators 1 --limit 0 --json"
    )
    offers = json.loads(run("ls", *arguments.split()).output)
    prices = [o["spot_price"] for o in offers]
    assert offers
    assert prices == sorted(prices)
    assert all(o["region"].startswith("us-") and o["memory"] >= 32 * 2**30 for o in offers)
    assert all(o["spot_price"] * 3600 <= 3 and o["accelerators"] >= 1 for o in offers)


def test_ls_sorts_sizes_from_the_largest() -> None:
    offers = json.loads(run("ls", "--sort", "network", "--limit", "3", "--json").output)
    assert [o["network"] for o in offers] == [8e11, 8e11, 4.5e11]


def test_ls_says_how_long_it_took() -> None:
    assert "offers loaded in" in run("ls", "--timing", "--limit", "1").output


def test_ls_lists_accelerators() -> None:
    assert "Gaudi3" in run("ls", "--accelerators").output
    facts = json.loads(run("ls", "--accelerators", "--json").output)
    assert {"name", "peak", "memory", "constants"} <= set(facts[0])


def test_show_knows_accelerators_and_instances() -> None:
    shown = run("show", "tpu-v5litepod").output
    assert "Google TPU-v5e" in shown
    assert "not published" in shown
    assert "tpu-v5litepod-8" in shown
    assert "gcp us-central1" in shown
    assert "prior only" in shown
    assert "in 90 % of cases" in " ".join(run("show", "H200").output.replace("│", " ").split())
    assert "2×" not in run("show", "G5.XLARGE").output
    only = json.loads(run("show", "aws/us-east-1/p5.48xlarge", "--json").output)
    assert [o["region"] for o in only] == ["us-east-1"]
    both = json.loads(run("show", "H200", "--json").output)
    assert both["accelerator"]["memory"] == 141e9
    assert len(both["offers"]) >= 2
    assert "No provider" in run("show", "MI325X").output


def test_import_reports_and_takes_effect(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(PRICES)
    shown = run("import", str(path), "--provider", "aws", "--date", "2026-08-22").output
    assert "Abacus" in shown
    listed = run("ls", "--cloud", "aws").output
    assert "p9.large" in listed
    assert "p5.48xlarge" not in listed
    (report,) = json.loads(run("import", str(path), "--provider", "aws", "--json").output)
    assert (report["offers"], report["invalid"]) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ls", "--sort", "beauty"], "--sort"),
        (["ls", "--min-memory", "lots"], "amount of memory"),
        (["ls", "--max-price", "cheap"], "price"),
        (["ls", "--accelerator", "abacus"], '"abacus"'),
        (["ls", "--cloud", "nowhere"], "none of the"),
        (["show", "p5.48xlrge"], "did you mean p5.48xlarge"),
        (["import", "nowhere.csv"], "no file"),
        (["import", "nowhere.csv", "--date", "yesterday"], "--date"),
    ],
)
def test_mistakes_get_one_sentence(arguments: list[str], message: str) -> None:
    with pytest.raises((BadInputError, NotFoundError), match=message):
        run(*arguments)


@pytest.mark.parametrize("command", ["ls", "show", "import"])
def test_help_teaches_with_an_example(command: str) -> None:
    assert f"trimtab catalog {command}" in run(command, "--help").output
