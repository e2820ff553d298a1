"""A long line of a child process arrives complete, also without a buffer."""

import json
import os
import subprocess
import sys

CODE = "from trimtab_bench.processes import write_line; "
CODE += "write_line(first=1); write_line(long=['x' * 1000] * 1000)"


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
