"""Commands need what they use, and no more."""

import os
import subprocess
import sys
from pathlib import Path

_WITHOUT = """
import sys
for name in ("fastapi", "httptools", "httpx", "nicegui", "orjson", "uvicorn", "uvloop", "websockets"):
    sys.modules[name] = None
from trimtab.cli import main
main()
"""


def _run(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "TRIMTAB_HOME": str(home)}
    command = [sys.executable, "-c", _WITHOUT, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def test_commands_on_the_store_here_work_without_what_a_server_needs(tmp_path: Path) -> None:
    for words in (("jobs",), ("decisions",), ("tenants",), ("access", "list")):
        done = _run(tmp_path, *words)
        assert done.returncode == 0, done.stderr


def test_asking_a_server_without_what_it_needs_says_what_to_install(tmp_path: Path) -> None:
    done = _run(tmp_path, "--server", "http://127.0.0.1:9", "jobs")
    assert done.returncode != 0
    assert "pip install 'trimtab[serve]'" in done.stderr
    assert "Traceback" not in done.stderr
