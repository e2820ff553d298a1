"""`trimtab models` as a user meets it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trimtab.cli import models
from trimtab.predict import Foundation, shipped_foundation

Trimtab = Callable[..., Any]


@pytest.fixture(scope="module")
def shipped() -> Foundation:
    return shipped_foundation()


def test_ls_shows_what_the_shipped_weights_come_from_and_how_good_they_are(
    trimtab: Trimtab, shipped: Foundation
) -> None:
    called = trimtab("models", "ls")
    assert called.status == 0
    for name, fitted in shipped.predictors.items():
        assert f"{name}, {shipped.card['sources'][name]['applications']} applications" in called.out
        for who, errors in fitted.errors.items():
            assert who in called.out
            assert all(f"{error:.1%}" in called.out for error in errors.values())


def test_ls_shows_weights_without_a_card_and_with_gaps_in_their_test(
    trimtab: Trimtab, shipped: Foundation, tmp_path: Path
) -> None:
    errors = {"trimtab": {1: 0.111, 3: 0.333}, "CPU share": {2: 0.222}}
    fitted = shipped.predictors["scout"]
    weights = tmp_path / "weights"
    Foundation({"mine": replace(fitted, errors=errors), "new": replace(fitted, errors={})}).save(weights)
    called = trimtab("models", "ls", "--weights", str(weights))
    assert called.status == 0
    row = next(line for line in called.out.splitlines() if "trimtab" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "mine", "ec2", "trimtab", "11.1%", "", "33.3%",
    ]  # fmt: skip
    assert "never tested" in called.out


@pytest.mark.parametrize("content", [None, b"", b"weights", b"\x10\x00\x00\x00\x00\x00\x00\x00{}"])
def test_ls_refuses_what_are_no_weights_in_one_sentence(
    trimtab: Trimtab, tmp_path: Path, content: bytes | None
) -> None:
    weights = tmp_path / "weights"
    if content is not None:
        weights.write_bytes(content)
    called = trimtab("models", "ls", "--weights", str(weights))
    assert called.status == 2
    assert called.out == ""
    assert called.error.startswith("trimtab: ")
    assert str(weights) in called.error
    assert called.error.count("\n") == 1


def test_pretrain_writes_weights_that_ls_reads(
    trimtab: Trimtab, shipped: Foundation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Path | None, int, str]] = []

    def fit(data: Path | None, seed: int, progress: Callable[[str, float], None], engine: str) -> Foundation:
        asked.append((data, seed, engine))
        progress("scout", 0.5)
        return Foundation({"scout": shipped.predictors["scout"]}, {"sources": {"scout": {"applications": 8}}})

    monkeypatch.setattr(models, "fit", fit)
    output = tmp_path / "new" / "weights"
    called = trimtab("models", "pretrain", "-o", str(output), "--data", str(tmp_path), "--seed", "5")
    assert called.status == 0
    assert asked == [(tmp_path, 5, "local://")]
    assert " MB" in called.error
    assert "scout, 8 applications" in trimtab("models", "ls", "--weights", str(output)).out


def test_pretrain_says_at_once_that_it_cannot_write(
    trimtab: Trimtab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(*_: object) -> Foundation:
        raise AssertionError("nothing should be learned")

    monkeypatch.setattr(models, "fit", fit)
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    for output in (tmp_path, tmp_path / "file" / "weights"):
        called = trimtab("models", "pretrain", "-o", str(output))
        assert called.status == 2
        assert str(output) in called.error


def test_pretrain_refuses_a_folder_without_data(trimtab: Trimtab, tmp_path: Path) -> None:
    called = trimtab("models", "pretrain", "-o", str(tmp_path / "weights"), "--data", str(tmp_path))
    assert called.status == 2
    assert "has a file" in called.error
    assert "Traceback" not in called.error
    assert not (tmp_path / "weights").exists()


def test_pretrain_refuses_an_engine_that_is_none(trimtab: Trimtab, tmp_path: Path) -> None:
    called = trimtab("models", "pretrain", "-o", str(tmp_path / "weights"), "--engine", "moon://")
    assert called.status == 2
    assert "engine to learn on" in called.error


@pytest.mark.parametrize("seed", ["-1", "4294967296", "some"])
def test_pretrain_refuses_a_seed_that_is_none(trimtab: Trimtab, tmp_path: Path, seed: str) -> None:
    called = trimtab("models", "pretrain", "-o", str(tmp_path / "weights"), "--seed", seed)
    assert called.status == 2
    assert "--seed" in called.error
