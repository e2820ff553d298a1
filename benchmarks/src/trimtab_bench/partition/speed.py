"""How long it takes: a very large random graph, and a very large model from its code to a plan."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from trimtab.core import TrimtabError
from trimtab.partition import Recipe, devices_of, solve
from trimtab_bench.partition.random_graphs import random_graph

NODES = 10_000
FLEET = "h100:16/8,a100-80:16/8,v100-32:16/8,t4:16/4"
"""64 devices of four kinds."""
_NETWORK = "100Gbit"
_FAMILY = "ordered"
_MAIN = "from trimtab.cli import main; main()"
_BUILDER = "from trimtab_bench.partition.models import MODELS\n\nbuild = MODELS[{model!r}]\n"
_ASKED = ("--network", "400Gbit", "--batch", "1024", "--json")


def solving_seconds(nodes: int, seed: int, fleet: str = FLEET) -> dict[str, float]:
    """Seconds to a plan for a random graph of so many nodes."""
    graph, devices = random_graph(_FAMILY, nodes, seed), devices_of(fleet, _NETWORK)
    begun = perf_counter()
    found = solve(graph, devices, Recipe(64))
    took = perf_counter() - begun
    return {"seconds": took, "fits": float(found.forecast.fits), "stages": float(len(found.plan.stages))}


def command_figures(model: str, devices: str = "h100:128/8") -> dict[str, float]:
    """Seconds and peak memory of `trimtab partition` in a fresh process, from Python code to a plan."""
    with TemporaryDirectory() as folder:
        source = Path(folder) / "model.py"
        source.write_text(_BUILDER.format(model=model), encoding="utf-8")
        command = [sys.executable, "-c", _MAIN, "partition", f"{source}:build"]
        command += ["--devices", devices, *_ASKED]
        begun = perf_counter()
        with open(Path(folder) / "output", "w+b") as output:
            own_store = os.environ | {"TRIMTAB_HOME": folder, "TRIMTAB_STORE": f"sqlite:///{folder}/store.db"}
            child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=own_store)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            took = perf_counter() - begun
            output.seek(0)
            said = output.read().decode(errors="replace").strip()
    if child.returncode != 0:
        raise TrimtabError(f"trimtab partition of {model} failed: {said[-300:]}")
    return {"seconds": took, "peak_gib": usage.ru_maxrss * 1024 / 2**30}
