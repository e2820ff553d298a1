from pathlib import Path

import pytest

from trimtab.core import StorageError
from trimtab.store import open_store
from trimtab.store.address import resolve


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "deep" / "home"))
    monkeypatch.delenv("TRIMTAB_STORE", raising=False)


def test_the_default_is_a_file_in_a_home_that_is_made(tmp_path: Path) -> None:
    with open_store() as store:
        assert store.name == str(tmp_path / "deep" / "home" / "trimtab.sqlite")
    assert (tmp_path / "deep" / "home" / "trimtab.sqlite").exists()


def test_the_environment_names_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_STORE", f"sqlite:///{tmp_path}/other.sqlite")
    assert resolve(None).name == str(tmp_path / "other.sqlite")
    assert resolve("sqlite:////mine.sqlite").name == "/mine.sqlite"


def test_a_relative_path_stays_where_it_was_when_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = resolve("sqlite:///here.sqlite")
    monkeypatch.chdir("/")
    assert address.path == tmp_path / "here.sqlite"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_postgresql_url_goes_to_psycopg_and_is_named_without_its_password(scheme: str) -> None:
    address = resolve(f"{scheme}://ann:hush@db.example:5433/trim?password=also&sslmode=require")
    assert address.url.drivername == "postgresql+psycopg"
    assert address.url.password == "hush"
    assert address.name == "postgresql://ann@db.example:5433/trim"
    assert address.without_secrets("hush and also") == "*** and ***"


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://ann:hush@db/trim", "cannot be kept at mysql"),
        ("postgresql+asyncpg://ann:hush@db/trim", "cannot be kept at postgresql"),
        ("ann:hush@db/trim", "no scheme"),
        ("/var/lib/trimtab.sqlite", "no scheme"),
        ("postgresql://ann:hush@db:port/trim", "cannot be read"),
        ("postgresql://ann:half@hush/x@db/trim", "more than one @"),
        ("postgresql://ann:half@hush@db/trim", "more than one @"),
        ("sqlite://", "name a file"),
        ("sqlite:///:memory:", "name a file"),
        ("sqlite://host/path", "name a file"),
        ("sqlite:///path?mode=ro", "name a file"),
    ],
)
def test_a_wrong_url_is_refused_in_one_sentence_that_keeps_its_password(url: str, sentence: str) -> None:
    with pytest.raises(StorageError, match=sentence) as refusal:
        open_store(url)
    assert "hush" not in str(refusal.value)
    assert "\n" not in str(refusal.value)
