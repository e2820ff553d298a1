"""A store of a test's own. A busy machine must not fail a law: examples may take their time."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from trimtab.store import Store, open_store

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    with open_store(f"sqlite:///{tmp_path}/trimtab.sqlite") as made:
        yield made
