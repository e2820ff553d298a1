"""Folders of runs do not stay behind."""

import os
import subprocess
from pathlib import Path

import pytest

from trimtab.partition.run.folders import meeting_folder, sweep


def test_a_folder_is_gone_after_its_run_whatever_happens() -> None:
    with pytest.raises(RuntimeError), meeting_folder() as folder:  # noqa: PT012
        (folder / "job").write_text("x")
        raise RuntimeError
    assert not folder.exists()


def test_folders_of_killed_processes_are_swept_and_others_are_not(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left, own, strange = (
        tmp_path / name
        for name in (f"trimtab-run-{gone.pid}-a", f"trimtab-run-{os.getpid()}-b", "trimtab-run-other-c")
    )
    for folder in (left, own, strange):
        folder.mkdir()
    sweep(tmp_path)
    assert [folder.exists() for folder in (left, own, strange)] == [False, True, True]
