"""A store is for its owner's eyes: all tenants' things are in it."""

import os
import stat
from pathlib import Path

from trimtab.store import open_store


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.glob("trimtab.sqlite*")}


def test_a_new_file_and_its_log_are_readable_for_nobody_else(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with open_store(f"sqlite:///{tmp_path}/trimtab.sqlite") as store:
            store.events.append("a", "b", {}, 1.0)
            assert len(list(tmp_path.glob("trimtab.sqlite*"))) > 1
            assert modes(tmp_path) == {0o600}
    finally:
        os.umask(before)


def test_a_file_that_was_given_to_others_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "trimtab.sqlite"
    with open_store(f"sqlite:///{path}"):
        pass
    path.chmod(0o640)
    with open_store(f"sqlite:///{path}"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
