"""What a process of the bench says arrives whole, also without a buffer."""

import json
import os
import subprocess
import sys

CODE = "from trimtab_bench.serve.processes import say; say(first=1); say(long=['x' * 1000] * 1000)"


def test_a_line_longer_than_a_pipe_holds_arrives_whole() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    first, long = map(json.loads, done.stdout.splitlines())
    assert first == {"first": 1}
    assert long == {"long": ["x" * 1000] * 1000}
