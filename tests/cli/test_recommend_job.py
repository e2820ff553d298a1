"""`trimtab recommend SPEC.yaml --job NAME` as a user meets it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measured_jobs import JOBS, write_measured, write_spec

from trimtab.core import Profile
from trimtab.kernel import LimitedGroup
from trimtab.observe import save_profile
from trimtab.store import open_store

Trimtab = Callable[..., Any]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A SPEC, its job, and options that name what other jobs did."""
    points, local = write_measured(tmp_path)
    return [str(write_spec(tmp_path)), "--job", "tune-me", "--data", str(points), "--local", str(local)]


def test_the_table_says_what_every_row_rests_on(
    trimtab: Trimtab, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    called = trimtab("recommend", *files, "--objective", "cost", "--top", "3", "--explain", "2")
    assert called.status == 0, called.error
    assert "tune-me: 50,000,000 samples; 12 configurations by cost, prices of 2026-11-15" in called.out
    assert re.search(r"1 +1 × wide +\S+ +\$[\d.]+ +20 MiB of 200 MiB +model", called.out)
    assert re.search(r"batch 32, \S+/h +\S+–\S+ +\$[\d.]+–\$[\d.]+ +fits: \d+% +3 other jobs", called.out)
    assert "Row 2:" in called.out
    assert "evidence: model, that is" in called.out
    made = re.search(r"trimtab decisions (\w{12})", called.out)
    assert made
    with open_store() as store:
        assert store.ledger.get(made[1]).kind == "recommend"
    assert "recommend for tune-me" in trimtab("decisions", made[1]).out


def test_a_trial_made_by_tune_is_evidence_afterwards(
    trimtab: Trimtab, files: list[str], tmp_path: Path, new_group: Callable[..., LimitedGroup]
) -> None:
    new_group()  # skips where there can be none
    tuned = trimtab("tune", *files, "--trials", "1", "--json")
    assert tuned.status == 0, tuned.error
    (tried,) = json.loads(tuned.out)["trials"]
    page = tmp_path / "report.html"
    called = trimtab("recommend", *files, "--json", "--top", "50", "--html", str(page))
    assert called.status == 0, called.error
    told = json.loads(called.out)
    by = {f"{row['workers']} × {row['shape']}, batch {row['batch']}": row for row in told["rows"]}
    assert by[tried["setup"]]["evidence"] == "trial"
    assert by[tried["setup"]]["fidelity"] == tried["fidelity"]
    assert {row["evidence"] for row in told["rows"]} == {"trial", "model"}
    assert all(row["time"]["low"] <= row["time"]["value"] <= row["time"]["high"] for row in told["rows"])
    assert told["trials"] == [tried]
    assert "What moves the model" in page.read_text()
    assert "other jobs answers" in called.error, "what goes on is told beside the JSON"


def test_a_local_run_is_made_where_there_is_none_and_said(
    trimtab: Trimtab, files: list[str], tmp_path: Path, new_group: Callable[..., LimitedGroup]
) -> None:
    new_group()
    folder = tmp_path / "others"
    folder.mkdir()
    points, local = write_measured(folder, {name: JOBS[name] for name in JOBS if name != "tune-me"})
    options = ("--job", "tune-me", "--data", str(points), "--local", str(local))
    called = trimtab("recommend", files[0], *options)
    assert called.status == 0, called.error
    assert "tune-me has no local run yet: it runs here 4 times" in called.out
    assert "trial" not in called.out.replace("trimtab", "")
    assert "no local run yet" not in trimtab("recommend", files[0], *options).out, "it is kept"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--job", "tune-mee"], '"tune-mee"'),
        (["--objective", "beauty"], '"beauty"'),
        (["--deadline", "1s"], "the deadline of 1 s"),
        (["--budget", "0"], "budget is 0"),
        (["--explain", "99"], "--explain is 99"),
        (["--top", "0"], "--top is 0"),
        (["--spot"], "--spot"),
        (["-o", "job.yaml"], "--output"),
        (["--data", "nowhere.csv"], "nowhere.csv"),
        (["--state", "nowhere.json"], "nowhere.json"),
    ],
)
def test_bad_options_are_one_sentence_and_decide_nothing(
    trimtab: Trimtab, files: list[str], options: list[str], sentence: str
) -> None:
    called = trimtab("recommend", *files, *options)
    assert called.status == 2
    assert sentence in called.error.replace("\n", " ")
    assert "Traceback" not in called.error
    with open_store() as store:
        assert not store.ledger.list(10)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("price_per_hour: 0.01}", "price_per_hour: 0}", "shapes.small.price_per_hour is 0"),
        ("workers: [1, 2]", "workers: [0]", "workers is [0]"),
        ("price_date: 2026-11-15", "price_date: soon", "price_date is 'soon'"),
    ],
)
def test_a_bad_spec_is_refused(trimtab: Trimtab, files: list[str], old: str, new: str, sentence: str) -> None:
    path = Path(files[0])
    path.write_text(path.read_text().replace(old, new))
    called = trimtab("recommend", *files)
    assert called.status == 2
    assert sentence in called.error.replace("\n", " ")


def test_a_spec_without_jobs_is_refused(trimtab: Trimtab, files: list[str]) -> None:
    path = Path(files[0])
    path.write_text("".join(line for line in path.open() if "tune-me" not in line and "jobs" not in line))
    called = trimtab("recommend", *files)
    assert called.status == 2
    assert "jobs is missing" in called.error.replace("\n", " ")


def test_data_of_two_price_dates_or_none_above_zero_are_refused(trimtab: Trimtab, files: list[str]) -> None:
    points = Path(files[4])
    good = points.read_text()
    points.write_text(good.replace("2026-11-15", "2026-11-01", 5))
    called = trimtab("recommend", *files)
    assert called.status == 2
    assert "prices of 2026-11-01 and 2026-11-15, which cannot be compared" in called.error.replace("\n", " ")
    points.write_text(good.replace(",0.018,", ",0,"))
    called = trimtab("recommend", *files)
    assert called.status == 2
    assert "column price_per_hour" in called.error.replace("\n", " ")


def test_a_spec_needs_a_job_and_a_profile_none(
    trimtab: Trimtab, files: list[str], make_profile: Callable[..., Profile], tmp_path: Path
) -> None:
    profile = tmp_path / "profile.json"
    save_profile(make_profile(), profile)
    for arguments, sentence in (
        ([files[0]], "tune-me"),
        ([str(profile), "--job", "tune-me"], "profile.json"),
        (["--job", "tune-me"], "--job"),
        ([str(profile), "--data", "points.csv"], "--data"),
    ):
        called = trimtab("recommend", *arguments)
        assert called.status == 2
        assert sentence in called.error.replace("\n", " ")
