"""Files that one process holds alone: who is refused, who may look, and who lets go by dying."""

import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.core import StorageError
from trimtab.kernel import held_alone, is_held

HOLDER = """
import sys
from pathlib import Path
from trimtab.kernel import held_alone
with held_alone(Path(sys.argv[1]), ""):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_file_is_held_by_one_at_a_time_also_within_a_process(tmp_path: Path) -> None:
    file = tmp_path / "below" / "lock"
    assert not is_held(file)
    for _ in range(2):
        with held_alone(file, "somebody has it"):
            assert is_held(file)
            with pytest.raises(StorageError, match="somebody has it"), held_alone(file, "somebody has it"):
                pass
            assert is_held(file), "who was refused has taken nothing away"
        assert not is_held(file)


def test_who_dies_lets_go(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert is_held(file)
        with pytest.raises(StorageError, match="taken"), held_alone(file, "taken"):
            pass
        holder.kill()
    assert not is_held(file)
    with held_alone(file, "taken"):
        pass
