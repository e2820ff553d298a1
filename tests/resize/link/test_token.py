"""Tokens: one word, one node, for a while."""

from pathlib import Path

import pytest

from trimtab.core import BadInputError, StorageError
from trimtab.resize.link.certificates import LIFETIME, JoinToken, JoinTokens

FINGERPRINT = "ab" * 32


@pytest.mark.parametrize("address", ["127.0.0.1:7434", "[::1]:80", "a-host.example:7434"])
def test_a_token_is_one_word_and_reads_back(address: str) -> None:
    token = JoinToken(address, FINGERPRINT, "0" * 32)
    assert JoinToken.parse(f" {token}\n") == token
    assert " " not in str(token)
    assert "0" * 32 not in repr(token)


@pytest.mark.parametrize(
    "word",
    [
        "",
        "tt1",
        "tt2.h:1." + FINGERPRINT + "." + "0" * 32,
        f"tt1.h:1.{FINGERPRINT}",
        f"tt1.h.{FINGERPRINT}.{'0' * 32}",
    ],
)
def test_another_word_is_refused_in_one_sentence(word: str) -> None:
    with pytest.raises(BadInputError):
        JoinToken.parse(word)


def test_a_secret_is_good_once_and_only_its_hash_is_kept(tmp_path: Path) -> None:
    tokens = JoinTokens(tmp_path / "tokens.json")
    first, second = tokens.new(100.0), tokens.new(100.0)
    kept = (tmp_path / "tokens.json").read_text()
    assert first not in kept
    assert (tmp_path / "tokens.json").stat().st_mode & 0o777 == 0o600
    tokens.use(first, 101.0)
    with pytest.raises(BadInputError, match="has been used"):
        tokens.use(first, 101.0)
    JoinTokens(tmp_path / "tokens.json").use(second, 101.0)  # another process's view


def test_a_secret_expires(tmp_path: Path) -> None:
    tokens = JoinTokens(tmp_path / "tokens.json")
    secret = tokens.new(100.0)
    with pytest.raises(BadInputError, match="has expired"):
        tokens.use(secret, 100.0 + LIFETIME)


def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text("{")
    with pytest.raises(StorageError, match="cannot be read"):
        JoinTokens(tmp_path / "tokens.json").new(0.0)
