"""CSV files by column, and rows of dataclasses of columns."""

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from trimtab.core import BadInputError
from trimtab.predict.tables import find_file, join_rows, read_table, take_rows


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "some.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_are_read_plain_and_gzipped(tmp_path: Path) -> None:
    text = "a,b,c\n1,x,True\n,y,False\n"
    zipped = tmp_path / "other.csv.gz"
    zipped.write_bytes(gzip.compress(text.encode()))
    for path in (_file(tmp_path, text), zipped):
        table = read_table(path, ("c", "a"))
        assert len(table) == 2
        np.testing.assert_array_equal(table.numbers("a"), [1.0, np.nan])
        assert table.flags("c").tolist() == [True, False]
        assert table.rows()[1] == (3, {"a": "", "b": "y", "c": "False"})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", r"some\.csv .*'a'"),
        ("b\n1\n", r"some\.csv .*'a'"),
        ("a\n", r"some\.csv"),
        ("a,b\n1,2\n3\n", r"some\.csv, line 3"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(BadInputError, match=named):
        read_table(_file(tmp_path, text), ("a",))


def test_a_file_that_is_not_there_or_not_gzip_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"none\.csv"):
        read_table(tmp_path / "none.csv", ("a",))
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(b"a,b\n")
    with pytest.raises(BadInputError, match=r"broken\.csv\.gz"):
        read_table(broken, ("a",))
    broken.write_bytes(gzip.compress(b"a\n1\n")[:-9])
    with pytest.raises(BadInputError, match=r"broken\.csv\.gz"):
        read_table(broken, ("a",))
    broken.write_bytes(gzip.compress(b"a\n\xff\n"))
    with pytest.raises(BadInputError, match=r"broken\.csv\.gz"):
        read_table(broken, ("a",))


def test_a_bad_value_is_named_with_line_and_column(tmp_path: Path) -> None:
    table = read_table(_file(tmp_path, 'a,b\n1,"two\nlines"\nsoon,\n'), ("a", "b"))
    with pytest.raises(BadInputError, match=r"some\.csv, line 4, column a: 'soon'"):
        table.numbers("a")
    with pytest.raises(BadInputError, match="line 4, column b"):
        table.text("b")
    with pytest.raises(BadInputError, match="column a: '1'"):
        table.flags("a")


@pytest.mark.parametrize("value", ["0", "-1", "", "nan"])
def test_a_time_is_above_zero(tmp_path: Path, value: str) -> None:
    table = read_table(_file(tmp_path, f"a,b\n5,\n{value},\n"), ("a",))
    with pytest.raises(BadInputError, match=f"line 3, column a: '{value}'"):
        table.positive("a")


def test_infinity_is_not_a_number_to_work_with(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="line 2, column a"):
        read_table(_file(tmp_path, "a\ninf\n"), ("a",)).numbers("a")


def test_chosen_rows_keep_their_line_numbers(tmp_path: Path) -> None:
    table = read_table(_file(tmp_path, "a\n1\n2\nx\n"), ("a",)).only(np.array([False, True, True]), "")
    with pytest.raises(BadInputError, match="line 4, column a"):
        table.numbers("a")
    with pytest.raises(BadInputError, match=r"some\.csv"):
        table.only(np.zeros(2, bool), "that completed")


def test_a_file_is_found_in_a_folder_or_its_subfolder(tmp_path: Path) -> None:
    inside = tmp_path / "set" / "some.csv.gz"
    inside.parent.mkdir()
    inside.write_bytes(b"")
    assert find_file(tmp_path, "set", "some.csv") == inside
    assert find_file(inside.parent, "set", "some.csv") == inside
    with pytest.raises(BadInputError, match=r"other\.csv"):
        find_file(tmp_path, "set", "other.csv")


@dataclass(frozen=True)
class _Table:
    name: str
    numbers: np.ndarray
    words: tuple[str, ...]


def test_rows_of_a_table_are_taken_and_joined() -> None:
    table = _Table("a", np.arange(6.0).reshape(3, 2), ("x", "y", "z"))
    some = take_rows(table, [2, 0])
    assert (some.name, some.words) == ("a", ("z", "x"))
    assert some.numbers.tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert take_rows(table, np.array([False, True, False])).words == ("y",)
    both = join_rows(table, some)
    assert both.words == ("x", "y", "z", "z", "x")
    assert both.numbers.shape == (5, 2)
