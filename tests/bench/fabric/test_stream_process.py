"""Both ends of the streams, over loopback: all that is sent is counted once."""

import subprocess
import sys

import pytest
from trimtab_bench.fabric import stream_process


@pytest.mark.parametrize("flows", [1, 4])
def test_all_that_is_sent_arrives(flows: int) -> None:
    command = [sys.executable, "-I", stream_process.__file__]
    ends = ("127.0.0.1", "7100", str(flows))
    with subprocess.Popen([*command, "receive", *ends], stdout=subprocess.PIPE, text=True) as receiver:
        try:
            assert receiver.stdout is not None
            assert receiver.stdout.readline() == "ready\n"
            subprocess.run([*command, "send", "127.0.0.1", *ends, "0.3"], check=True, timeout=30)
            told, _ = receiver.communicate(timeout=30)
        finally:
            receiver.kill()
    count, seconds = told.split()
    assert int(count) > 0
    assert int(count) % (1 << 20) == 0, "whole pieces, however they came"
    assert 0.2 < float(seconds) < 20
