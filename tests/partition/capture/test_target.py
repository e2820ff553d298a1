"""What a user names is read by its kind, and PyTorch is loaded only to build a model."""

import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.core import NotFoundError
from trimtab.partition import load_graph, write_graph


def test_a_graph_file_is_read_without_pytorch(tmp_path: Path, make_graph) -> None:  # type: ignore[no-untyped-def]
    write_graph(make_graph(), tmp_path / "graph.json")
    code = (
        "import sys; from trimtab.partition import load_graph;"
        f"print(len(load_graph({str(tmp_path / 'graph.json')!r})), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == [str(len(make_graph())), "False"]


@pytest.mark.parametrize("name", ["none.json", "none.onnx", "none.py:build"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("torch")
    with pytest.raises(NotFoundError, match=r"there is no file .*none"):
        load_graph(str(tmp_path / name))
