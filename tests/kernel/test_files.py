"""Files held by one process at a time, YAML that cannot be read, and writing in the background."""

import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trimtab.core import BadInputError, StorageError
from trimtab.kernel import BackgroundWriter, file_lock, is_locked, read_yaml

HOLDER = """
import sys
from pathlib import Path
from trimtab.kernel import file_lock
with file_lock(Path(sys.argv[1]), ""):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_file_is_held_by_one_at_a_time_also_within_a_process(tmp_path: Path) -> None:
    file = tmp_path / "below" / "lock"
    assert not is_locked(file)
    for _ in range(2):
        with file_lock(file, "somebody has it"):
            assert is_locked(file)
            with (
                pytest.raises(StorageError, match="somebody has it"),
                file_lock(file, "somebody has it"),
            ):
                pass
            assert is_locked(file), "who was refused has taken nothing away"
        assert not is_locked(file)


def test_who_dies_lets_go(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert is_locked(file)
        with pytest.raises(StorageError, match="taken"), file_lock(file, "taken"):
            pass
        holder.kill()
    assert not is_locked(file)
    with file_lock(file, "taken"):
        pass


@pytest.mark.parametrize(
    "content", [None, "", "a: [", "\0", "[" * 5000], ids=["missing", "folder", "open", "null", "deep"]
)
def test_a_file_that_is_not_yaml_is_refused_in_one_line(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "hosts.yaml"
    if content:
        path.write_text(content)
    elif content is not None:
        path.mkdir()
    with pytest.raises(BadInputError, match=r"^[^\n]*hosts\.yaml[^\n]*$"):
        read_yaml(path, "of hosts")


def test_a_yaml_file_that_is_too_large_is_not_read_to_its_end() -> None:
    with pytest.raises(BadInputError, match=r"/dev/zero .*1 KiB"):
        read_yaml(Path("/dev/zero"), "that describes nothing", 1024)


def test_yaml_is_read_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "told.yaml"
    path.write_text("hosts: [a, ä]\n", encoding="utf-8")
    assert read_yaml(path, "of hosts") == {"hosts": ["a", "ä"]}


def test_nobody_waits_and_all_is_written_in_order_when_it_ends() -> None:
    written, may_write = list[int](), threading.Event()

    def slowly(number: int) -> None:
        assert may_write.wait(10)
        written.append(number)

    with BackgroundWriter(slowly, "a number is lost") as aside:
        for number in range(100):
            aside.put(number)
        assert written == []
        may_write.set()
    assert written == list(range(100))


def test_what_cannot_be_written_is_said_once_for_each_reason_and_the_rest_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    written = list[int]()

    def refuse_some(number: int) -> None:
        if number % 3 == 0:
            raise OSError("the disk is full")
        if number % 3 == 1:
            raise StorageError("the store is locked")
        written.append(number)

    with caplog.at_level(logging.WARNING), BackgroundWriter(refuse_some, "a number is lost") as aside:
        for number in range(9):
            aside.put(number)
    assert written == [2, 5, 8]
    assert [each.message for each in caplog.records] == [
        "a number is lost: the disk is full",
        "a number is lost: the store is locked",
    ]
