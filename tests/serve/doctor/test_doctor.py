"""The examination as a whole: complete, quick, without traces, useful to who is not root."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import trimtab
from trimtab.core import BadInputError
from trimtab.serve import GROUPS, Examined, Finding, FindingState, Settings, examine, fit

AS_NOBODY = """
import encodings.idna, json, os
from trimtab.core import to_plain
from trimtab.serve import Settings, examine, fit
list(examine(Settings()))  # imports everything while the interpreter's files can be read
os.setgroups([]); os.setgid(65534); os.setuid(65534)
found = list(examine(Settings()))
print(json.dumps({"fit": fit(found), "found": {each.group: to_plain(each.findings) for each in found}}))
"""


def groups_left() -> set[str]:
    return {
        str(path)
        for path in Path("/sys/fs/cgroup").glob("**/trimtab-*")
        if f"-{os.getpid()}-" in path.name and path.is_dir()
    }


def test_every_group_is_looked_at_once_and_nothing_is_left(tmp_path: Path) -> None:
    home = Path(os.environ["TRIMTAB_HOME"])
    start = time.process_time()
    examined = list(examine(Settings(listen="127.0.0.1:0")))
    assert time.process_time() - start < 3.0
    assert [item.group for item in examined] == list(GROUPS)
    assert all(item.findings for item in examined)
    assert not home.exists()
    assert not list(tmp_path.iterdir())
    assert not groups_left()


def test_whatever_is_not_well_says_what_it_disables_and_how_to_mend_it() -> None:
    for item in examine(Settings(listen="127.0.0.1:0")):
        for finding in item.findings:
            assert finding.what
            assert finding.seen
            assert "\n" not in finding.seen
            if finding.state is not FindingState.OK:
                assert finding.disables
                assert finding.mend


def test_only_what_is_asked_for_is_looked_at() -> None:
    assert [item.group for item in examine(Settings(), ["clock", "python"])] == ["python", "clock"]
    with pytest.raises(BadInputError, match="clock"):
        list(examine(Settings(), ["clok"]))


def test_only_what_is_needed_and_missing_makes_a_machine_unfit() -> None:
    def found(state: FindingState, needed: bool) -> list[Examined]:
        return [Examined("python", (Finding("x", state, "seen", "d", "m", needed),))]

    assert fit(found(FindingState.MISSING, needed=False))
    assert fit(found(FindingState.WARNING, needed=True))
    assert not fit(found(FindingState.MISSING, needed=True))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody who is not")
def test_who_is_not_root_is_told_what_that_disables() -> None:
    closed = [item for item in Path(trimtab.__file__).parents if not item.stat().st_mode & 0o001]
    if closed:
        pytest.skip(f"needs a checkout that others may read, and {closed[0]} is closed to them")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        environment = {**os.environ, "TRIMTAB_HOME": f"{folder}/home", "HOME": folder, "TMPDIR": folder}
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert os.listdir(folder) == []
    result = json.loads(done.stdout)
    assert not result["fit"]  # local:// cannot limit its jobs
    limits = next(item for item in result["found"]["cgroups"] if item["what"] == "limits")
    assert limits["state"] == "missing"
    assert "local://" in limits["disables"]
    user = result["found"]["permissions"][0]
    assert (user["what"], user["state"]) == ("user", "warning")
    assert {item["state"] for item in result["found"]["store"] if item["what"] != "writing"} == {"ok"}
    assert result["found"]["network"][0]["state"] == "missing"
    assert not [item for group in result["found"].values() for item in group if "cannot be" in item["seen"]]
