"""Importing is quick: nobody waits for a library that is not used."""

import re
import subprocess
import sys

import pytest

HEAVY = {"numpy", "scipy", "torch", "sqlalchemy", "alembic", "plotly", "ray"}


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


@pytest.mark.parametrize("module", ["trimtab", "trimtab.core", "trimtab.core.units", "trimtab.predict"])
def test_importing_brings_in_no_heavy_library(module: str) -> None:
    loaded = _python("-c", f"import sys, {module}; print(*sys.modules)").stdout.split()
    assert module in loaded
    assert HEAVY.isdisjoint(loaded)


def test_estimating_does_not_wait_for_what_only_fitting_needs() -> None:
    code = "import sys; from trimtab.predict import AnalyticEstimator; print(*sys.modules)"
    loaded = _python("-c", code).stdout.split()
    assert "trimtab.predict.cost.estimator" in loaded
    assert "scipy" not in loaded


def test_importing_trimtab_takes_well_under_200_ms() -> None:
    def milliseconds() -> float:
        report = _python("-X", "importtime", "-c", "import trimtab.core").stderr
        total = {name: int(us) for us, name in re.findall(r"\|\s*(\d+) \| +(\S+)", report)}
        return (total["trimtab"] + total["trimtab.core"]) / 1e3

    # The quickest of three: what the import needs, whatever else the machine is doing.
    assert min(milliseconds() for _ in range(3)) < 100.0
