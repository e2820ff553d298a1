"""Files that one process holds alone, by dying lets go of; and YAML that cannot be read, in a sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.core import BadInputError, StorageError
from trimtab.kernel import held_alone, is_held, read_yaml

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


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, r"there is no file .*told\.yaml"),
        ("", r"told\.yaml is a folder; name a YAML file of hosts"),
        ("a: [", r"told\.yaml cannot be read as YAML: "),
        ("\0", r"told\.yaml cannot be read as YAML: "),
        ("[" * 5000, r"told\.yaml cannot be read as YAML: "),
    ],
)
def test_what_is_no_yaml_is_said_in_one_line(tmp_path: Path, content: str | None, sentence: str) -> None:
    path = tmp_path / "told.yaml"
    if content:
        path.write_text(content)
    elif content is not None:
        path.mkdir()
    with pytest.raises(BadInputError, match=f"^[^\n]*{sentence}[^\n]*$"):
        read_yaml(path, "of hosts")


def test_yaml_is_read_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "told.yaml"
    path.write_text("hosts: [a, ä]\n", encoding="utf-8")
    assert read_yaml(path, "of hosts") == {"hosts": ["a", "ä"]}
