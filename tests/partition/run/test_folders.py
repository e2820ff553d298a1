"""Folders of runs do not stay behind."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from trimtab.kernel import Owner
from trimtab.partition.run.folders import meeting_folder, sweep


def test_a_folder_is_gone_after_its_run_whatever_happens() -> None:
    with pytest.raises(RuntimeError), meeting_folder() as folder:  # noqa: PT012
        (folder / "job").write_text("x")
        raise RuntimeError
    assert not folder.exists()


def test_folders_of_killed_processes_are_swept_and_others_are_not(tmp_path: Path) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    me = Owner.current()
    gone, elsewhere = replace(me, pid=child.pid), replace(me, namespace=me.namespace + 1, pid=child.pid)
    names = (gone.name("run1"), me.name("run2"), elsewhere.name("run3"), "trimtab-other-run4")
    folders = [tmp_path / name for name in names]
    for folder in folders:
        folder.mkdir()
    sweep(tmp_path)
    assert [folder.exists() for folder in folders] == [False, True, True, True]
