"""The server answers as asked and ends with its context."""

import time
import urllib.error
import urllib.request

import pytest

from trimtab.collect.functions.server import local_server


@pytest.mark.usefixtures("no_group_is_left")
def test_the_server_waits_answers_and_ends() -> None:
    with local_server(frozenset({0})) as address:
        start = time.monotonic()
        with urllib.request.urlopen(f"{address}/stream?chunks=3&size=100&milliseconds=20") as answer:
            assert len(answer.read()) == 300
        assert time.monotonic() - start >= 0.06
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{address}/call?size=1&milliseconds=0", timeout=1)
