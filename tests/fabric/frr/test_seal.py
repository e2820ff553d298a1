"""A configuration file says whose it is, and an edit by hand does not go unnoticed."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, strategies as st

from trimtab.core import BadInputError
from trimtab.fabric.frr.configuration import check_untouched, sealed

LINES = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=200)


@given(content=LINES, other=LINES)
def test_any_other_content_is_noticed(content: str, other: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "bgpd.conf"
        written = sealed(content)
        path.write_text(written, encoding="utf-8", newline="")
        check_untouched(path)
        path.write_text(written.removesuffix(content) + other, encoding="utf-8", newline="")
        if other == content:
            check_untouched(path)
        else:
            with pytest.raises(BadInputError, match=r"bgpd\.conf"):
                check_untouched(path)


def test_a_file_of_somebody_else_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "zebra.conf"
    path.write_text("hostname router\n")
    with pytest.raises(BadInputError, match=re.escape(str(path))):
        check_untouched(path)


def test_no_file_is_fine(tmp_path: Path) -> None:
    check_untouched(tmp_path / "zebra.conf")
