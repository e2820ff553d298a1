"""The home folder, and variables that hold secrets."""

from pathlib import Path

import pytest

from trimtab.core import home, inherited, names_a_secret


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


def test_a_job_inherits_a_short_list_and_no_credentials() -> None:
    harmless = {
        "PATH": "/bin",
        "LC_ALL": "C.UTF-8",
        "http_proxy": "http://proxy:8080/a@b",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    others = {
        "TRIMTAB_STORE": "sqlite:////var/lib/trimtab/trimtab.sqlite",
        "GH_PAT": "hidden",
        "SLACK_WEBHOOK": "https://hooks.example/hidden",
        "REDIS": "host=x password=hidden",
        "https_proxy": "http://user:hidden@proxy:8080",
        "all_proxy": "socks5://hidden@proxy",
        "lc_all": "C",
    }
    assert inherited({**harmless, **others}) == harmless
