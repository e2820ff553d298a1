"""Folders that go away, also those of the dead."""

from pathlib import Path

import pytest

from trimtab.collect.functions.folder import own_folder, sweep_folders
from trimtab.core import StorageError
from trimtab.kernel import Owner


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_lives_as_long_as_its_context() -> None:
    with own_folder() as folder:
        (folder / "file").write_text("x")
    assert not folder.exists()


def test_folders_of_the_dead_are_swept_and_no_others(temporary: Path) -> None:
    dead = temporary / Owner(Owner.current().namespace, 4_000_000, 1).name("a")
    other = temporary / "trimtab-something"
    for folder in (dead, other):
        folder.mkdir()
    with own_folder() as mine:
        sweep_folders()
        assert (dead.exists(), other.exists(), mine.exists()) == (False, True, True)


def test_no_folder_is_said_in_one_sentence(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "gone"))
    with pytest.raises(StorageError, match="no such file or directory; name another folder"):
        own_folder().__enter__()
