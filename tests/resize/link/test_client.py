"""Only who speaks to other nodes loads gRPC."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["trimtab.resize", "trimtab.cli"])
def test_sizing_a_node_alone_loads_neither_grpc_nor_cryptography(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert module in loaded.split()
    assert {"grpc", "cryptography"}.isdisjoint(loaded.split())
