"""Unknown names refused with the nearest, values quoted in one line, and addresses."""

import pytest

from trimtab.core import BadInputError, did_you_mean, is_loopback, one_line, refuse_unknown, split_address


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


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("127.0.0.1:7433", ("127.0.0.1", 7433)),
        ("[::1]:0", ("::1", 0)),
        ("node-1.example:65535", ("node-1.example", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, parts: tuple[str, int]) -> None:
    assert split_address(text) == parts


@pytest.mark.parametrize("text", ["", "7433", "host:", ":7433", "host:65536", "host:-1", "::1:7433", "a b:1"])
def test_what_is_none_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(BadInputError, match="address"):
        split_address(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *(("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("localhost", True)),
        *(("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("localhost.example", False)),
    ],
)
def test_only_this_machine_reaches_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
