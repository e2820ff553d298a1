"""A look at a store leaves it as it is, and says of a bad one what opening it would say."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, make_url

from trimtab.core import StorageError
from trimtab.store import look_at_store, open_store
from trimtab.store.schema import REVISIONS


def test_an_empty_place_stays_empty(empty_url: str, tmp_path: Path) -> None:
    seen = look_at_store(empty_url)
    assert (seen.revision, seen.newest) == (None, REVISIONS[-1])
    if seen.path is not None:
        assert not list(tmp_path.iterdir())
        return
    engine = create_engine(make_url(empty_url).set(drivername="postgresql+psycopg"))
    assert inspect(engine).get_table_names() == []
    engine.dispose()


def test_a_store_shows_its_schema_also_while_it_is_open(url: str) -> None:
    with open_store(url) as store:
        assert look_at_store(url).revision == REVISIONS[-1]
        assert look_at_store(url).name == store.name
    assert look_at_store(url).revision == REVISIONS[-1]


def test_a_server_that_is_away_is_a_sentence_without_its_password() -> None:
    with pytest.raises(StorageError) as away:
        look_at_store("postgresql://me:geheim@127.0.0.1:1/trimtab")
    assert "geheim" not in str(away.value)
    assert "\n" not in str(away.value)


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("dear reader " * 50, encoding="utf-8")
    with pytest.raises(StorageError):
        look_at_store(f"sqlite:///{path}")
    assert path.read_text(encoding="utf-8") == "dear reader " * 50
