"""The home folder, and variables that hold secrets."""

from pathlib import Path

import pytest

from trimtab.core import home, names_a_secret, without_secrets


def test_the_environment_names_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "kept"))
    assert home() == tmp_path / "kept"
    assert not home().exists()


@pytest.mark.parametrize("unset", [None, ""])
def test_without_it_home_is_a_hidden_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unset: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TRIMTAB_HOME", raising=False)
    if unset is not None:
        monkeypatch.setenv("TRIMTAB_HOME", unset)
    assert home() == tmp_path / ".trimtab"


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY",
        "TRIMTAB_TOKEN",
        "PGPASSWORD",
        "MYSQL_PWD",
        "hf_token",
        "GITHUBTOKEN",
        "API_KEY",
    ],
)
def test_a_name_that_says_it_is_a_secrets_is_one(name: str) -> None:
    assert names_a_secret(name)


@pytest.mark.parametrize(
    "name", ["PATH", "PWD", "OLDPWD", "KEYBOARD", "TOKENIZERS_PARALLELISM", "CUDA_VISIBLE_DEVICES", ""]
)
def test_other_names_are_not(name: str) -> None:
    assert not names_a_secret(name)


def test_a_job_inherits_neither_secrets_nor_urls_with_a_password() -> None:
    harmless = {
        "PATH": "/bin",
        "TRIMTAB_STORE": "sqlite:////var/lib/trimtab/trimtab.sqlite",
        "DATABASE": "postgresql://trimtab@db:5432/trimtab",
        "PROXY": "http://proxy:8080/a@b",
    }
    secret = {
        "TRIMTAB_TOKEN": "tt_0",
        "DATABASE_URL": "postgresql://trimtab:hidden@db:5432/trimtab",
        "REDIS": "redis://:hidden@cache",
        "ODD": "postgresql://trimtab:p@ss:word@db/trimtab",
    }
    assert without_secrets({**harmless, **secret}) == harmless
