"""What people write down: a slip is named with what may be meant, and quoted in one line."""

import pytest

from trimtab.core import BadInputError, did_you_mean, one_line, refuse_unknown


def test_an_unknown_name_is_refused_with_the_nearest_one_and_all_there_are() -> None:
    with pytest.raises(BadInputError) as refused:
        refuse_unknown("pools.yaml, pool 1", {"cpu": 1, "memroy": 2}, ("cpu", "memory"))
    assert str(refused.value) == (
        'pools.yaml, pool 1: there is no "memroy" here (did you mean memory?); the names are cpu, memory'
    )
    refuse_unknown("pools.yaml, pool 1", {"cpu": 1}, ("cpu", "memory"))


def test_nothing_is_suggested_where_nothing_is_near() -> None:
    assert did_you_mean("zzz", ("cpu", "memory")) == ""
    assert did_you_mean("MEMORY", ("cpu", "memory")) == " (did you mean memory?)"


def test_a_value_is_quoted_in_one_printable_line() -> None:
    assert one_line("two\nlines\x1b[31m") == "two lines [31m"
    assert len(one_line(list(range(10_000)))) <= 40
    assert one_line(10**100) == "1" + 39 * "0" + "…"
    assert one_line(10**10_000) == "a number of thousands of digits"
