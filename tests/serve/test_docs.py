"""What the API's document shows works as it is written."""

import contextlib
import io
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimtab.serve.http import HttpApplication
from trimtab.serve.http.openapi import document
from trimtab.serve.processes.server import listening
from trimtab.serve.settings import Settings
from trimtab.store import Store

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "api.md").read_text(encoding="utf-8")


@pytest.fixture
def port(store: Store) -> Iterator[int]:
    result = Settings(listen="127.0.0.1:0", dashboard=False)
    with listening(HttpApplication(store, result), result) as server:
        yield server.port


def test_the_curl_examples_are_answered(port: int, store: Store) -> None:
    lines = PAGE.replace("\\\n", " ").splitlines()
    examples = [line.removeprefix("$ ") for line in lines if line.startswith("$ curl")]
    assert len(examples) == 4
    for example in examples:
        command = example.replace("curl -s", "curl -s -f").replace("localhost:7430", f"127.0.0.1:{port}")
        shown = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=30)
        assert shown.returncode == 0, (example, shown.stdout, shown.stderr)
    assert [record.name for record in store.jobs.list()] == ["hello"]
    assert [tenant.guarantee for tenant in store.tenants.list()] == [4.0]


def test_the_python_example_runs(port: int) -> None:
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code is not None
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(code[1].replace("127.0.0.1:7430", f"127.0.0.1:{port}"), {})
    assert "waiting" in shown.getvalue()
    assert "job.waiting" in shown.getvalue()


def test_every_path_in_the_table_is_served() -> None:
    table = PAGE[PAGE.index("| path under") :].partition("\n\n")[0]
    rows = [row for row in table.splitlines()[2:] if "monitoring" not in row]
    named = {path for row in rows for path in re.findall(r"`(/[^`]*)`", row)}
    assert len(named) > 20
    assert named <= {path.removeprefix("/v1") for path in document()["paths"]}
