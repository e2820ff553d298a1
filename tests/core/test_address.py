import pytest

from trimtab.core import BadInputError, is_loopback, split_address


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
    with pytest.raises(BadInputError, match="is not an address"):
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
