"""Words that bash reads back."""

import subprocess

import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import BadInputError
from trimtab.engines.jobfiles.script import quote

WORD = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@settings(max_examples=60, deadline=None)
@given(st.lists(WORD, max_size=4))
def test_bash_reads_back_every_word(words: list[str]) -> None:
    line = " ".join(map(quote, words))
    done = subprocess.run(
        ["bash", "-c", rf'printf "%s\0" x {line}'], capture_output=True, check=True, env={"LC_ALL": "C"}
    )
    assert done.stdout.decode().split("\0")[1:-1] == words


@given(WORD)
def test_a_quoted_word_is_printable_and_on_one_line(word: str) -> None:
    assert quote(word).isprintable()


def test_bytes_that_are_not_text_survive() -> None:
    assert quote("a\udcff") == r"$'a\377'"


@pytest.mark.parametrize("word", ["a\0b", "a\ud800"])
def test_what_no_program_can_be_given_is_refused(word: str) -> None:
    with pytest.raises(BadInputError):
        quote(word)
