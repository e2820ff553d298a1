"""Cost of watching: the step time of a training script with the listener and without it.

Two runs of the same script differ by more than the listener costs, even on a quiet machine. So each run
under `trimtab profile` switches the listener off and on every few steps: a triple of neighbouring blocks
(off, on, off again, in random order) gives one ratio, and one control ratio of the two blocks without it.
The sampler, which runs beside the script, is charged with the CPU time it takes. The peer is Python's own
profiler.
"""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from trimtab.core import MissingDependencyError, StorageError
from trimtab.core.units import format_duration
from trimtab.observe import ProfilerSettings, profile
from trimtab_bench.harness import BenchOptions, BenchResult, Table

PROMISED = 0.02
"""The share of the step time that watching may add."""

_SCRIPT = """
import json, random, sys, time
import torch
from torch import nn
from torch.optim import optimizer as hooks
model_name, triples, seed, answer = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
torch.manual_seed(0)
torch.set_num_threads(1)
if model_name == "small":
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    shape = (32, 256)
else:
    layers = [nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU()]
    for _ in range(2):
        layers += [nn.Conv2d(32, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    shape = (8, 3, 64, 64)
size = shape[0] * 16
data = torch.utils.data.TensorDataset(torch.randn(size, *shape[1:]), torch.zeros(size).long())
loader = torch.utils.data.DataLoader(data, batch_size=shape[0])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
listening, silent = hooks._global_optimizer_post_hooks, type(hooks._global_optimizer_post_hooks)()

def block(on):
    # An iterator made without the loader's `__iter__` is one that the listener does not see.
    hooks._global_optimizer_post_hooks = listening if on else silent
    start = time.perf_counter()
    for x, y in iter(loader) if on else loader._get_iterator():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return (time.perf_counter() - start) / 16

for _ in range(2):
    block(True)
order, found = random.Random(seed), []
for _ in range(triples):
    kinds = ["off", "on", "again"]
    order.shuffle(kinds)
    found.append({kind: block(kind == "on") for kind in kinds})
json.dump(found, open(answer, "w"))
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A model, and how many triples of blocks one run takes."""

    name: str
    triples: int


CASES = (Case("small", 300), Case("larger", 60))


def run(options: BenchOptions) -> BenchResult:
    """Measure both cases; `quick` makes fewer runs."""
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError(
            "the bench trains with PyTorch; install it with: pip install 'trimtab[learn]'"
        )
    triples: dict[str, list[dict[str, float]]] = {case.name: [] for case in CASES}
    busy = elapsed = 0.0
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(_SCRIPT)
        runs = [(case, seed) for seed in range(2 if options.quick else 6) for case in CASES]
        for case, seed in options.track(runs, "profile overhead"):
            started, used = time.perf_counter(), time.process_time()
            triples[case.name] += _watched(script, case, options.seed + seed)
            busy, elapsed = busy + time.process_time() - used, elapsed + time.perf_counter() - started
        peers = {case.name: _peer_step(script, case) for case in CASES}
    figures = {name: _figures(found) for name, found in triples.items()}
    added = {name: peers[name] / figures[name]["step"] - 1 for name in peers}
    return BenchResult(
        bench="profile-overhead",
        figures={f"{name}_{what}": value for name, found in figures.items() for what, value in found.items()}
        | {"sampler_cores": busy / elapsed},
        baselines={"cProfile": added},
        published={"Trimtab's promise": {"overhead": PROMISED}},
        seed=options.seed,
        tables=(_table(figures, added),),
    )


def _figures(triples: list[dict[str, float]]) -> dict[str, float]:
    """Medians with the middle half of the ratios around them."""
    added = [2 * t["on"] / (t["off"] + t["again"]) - 1 for t in triples]
    control = [t["again"] / t["off"] - 1 for t in triples]
    low, overhead, high = statistics.quantiles(added, n=4)
    return {
        "overhead": overhead,
        "low": low,
        "high": high,
        "control": statistics.median(control),
        "step": statistics.median(t["off"] for t in triples),
        "triples": len(triples),
    }


def _watched(script: Path, case: Case, seed: int) -> list[dict[str, float]]:
    """Seconds of a step in blocks with and without the listener, in one run under the profiler."""
    answer = script.with_name("answer.json")
    profile(_command(script, case, case.triples, seed, answer), ProfilerSettings(window=600.0, full=True))
    return _read_answer(answer)


def _peer_step(script: Path, case: Case) -> float:
    answer = script.with_name("answer.json")
    command = list(_command(script, case, case.triples // 6, 0, answer))
    command[1:1] = ["-m", "cProfile", "-o", os.fspath(script.with_name("peer"))]
    subprocess.run(command, check=False)
    return statistics.median(t["off"] for t in _read_answer(answer))


def _command(script: Path, case: Case, triples: int, seed: int, answer: Path) -> tuple[str, ...]:
    return (sys.executable, str(script), case.name, str(triples), str(seed), str(answer))


def _read_answer(path: Path) -> list[dict[str, float]]:
    try:
        found: list[dict[str, float]] = json.loads(path.read_text())
        path.unlink()
    except (OSError, ValueError):
        raise StorageError(
            "the bench's training script did not finish; run it again with more memory"
        ) from None
    return found


def _table(figures: dict[str, dict[str, float]], peers: dict[str, float]) -> Table:
    rows = tuple(
        (
            name,
            format_duration(found["step"]),
            f"{found['overhead']:+.2%} ({found['low']:+.2%} to {found['high']:+.2%})",
            f"{found['control']:+.2%}",
            f"{peers[name]:+.0%}",
        )
        for name, found in figures.items()
    )
    columns = ("model", "step", "listener (middle half)", "control", "cProfile")
    return Table("Step time added by watching, median over triples of blocks", columns, rows)
