"""Overhead of profiling: the step time of a training script with the listener and without it.

Two runs of the same script differ by more than the listener costs, even on a quiet machine. So each run
under `trimtab profile` switches the listener off and on every few steps: a triple of neighbouring blocks
(off, on, off again, in random order) gives one ratio, and one control ratio of the two blocks without it.
The sampler, which runs in parallel, is charged with the CPU time it takes. The peer is Python's own
profiler.
"""

import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from trimtab.core import MissingDependencyError, StorageError
from trimtab.core.units import format_duration
from trimtab.observe import ProfilerSettings, profile
from trimtab_bench.harness import BenchOptions, BenchResult, ResultTable

PROMISED = 0.02
"""Share of the step time that profiling may add."""

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


CASES = {"small": 300, "larger": 60}
"""Models, and the triples of blocks in one run."""


def run(options: BenchOptions) -> BenchResult:
    """Measure both models; `quick` makes fewer runs."""
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError(
            "the bench trains with PyTorch; install it with: pip install 'trimtab[learn]'"
        )
    triples: dict[str, list[dict[str, float]]] = {model: [] for model in CASES}
    peers, busy, elapsed = {}, 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        script, answer = Path(folder) / "train.py", Path(folder) / "answer.json"
        script.write_text(_SCRIPT)

        def words(model: str, triples: int, seed: int) -> tuple[str, ...]:
            return (str(script), model, str(triples), str(seed), str(answer))

        runs = [(model, seed) for seed in range(2 if options.quick else 6) for model in CASES]
        for model, seed in options.track(runs, "profile overhead"):
            started, used = time.perf_counter(), time.process_time()
            command = (sys.executable, *words(model, CASES[model], options.seed + seed))
            profile(command, ProfilerSettings(window=600.0, full=True))
            triples[model] += _read_answer(answer)
            busy, elapsed = busy + time.process_time() - used, elapsed + time.perf_counter() - started
        profiled = [sys.executable, "-m", "cProfile", "-o", str(Path(folder) / "peer")]
        for model in CASES:
            subprocess.run([*profiled, *words(model, CASES[model] // 6, 0)], check=False)
            peers[model] = statistics.median(triple["off"] for triple in _read_answer(answer))
    figures = {model: _figures(blocks) for model, blocks in triples.items()}
    added = {model: peers[model] / figures[model]["step"] - 1 for model in peers}
    rows = {
        model: measures | {"step": format_duration(measures["step"]), "peer": added[model]}
        for model, measures in figures.items()
    }
    columns = {
        "step": "{step}",
        "listener (middle half)": "{overhead:+.2%} ({low:+.2%} to {high:+.2%})",
        "control": "{control:+.2%}",
        "cProfile": "{peer:+.0%}",
    }
    title = "Step time added by watching, median over triples of blocks"
    return BenchResult(
        bench="profile-overhead",
        figures={f"{model}_{name}": figures[model][name] for model in figures for name in figures[model]}
        | {"sampler_cores": busy / elapsed},
        baselines={"cProfile": added},
        published={"Trimtab's promise": {"overhead": PROMISED}},
        seed=options.seed,
        tables=(ResultTable.of(title, "model", rows, columns),),
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


def _read_answer(path: Path) -> list[dict[str, float]]:
    """Seconds of a step in blocks with and without the listener."""
    try:
        triples: list[dict[str, float]] = json.loads(path.read_text())
        path.unlink()
    except (OSError, ValueError):
        raise StorageError(
            "the bench's training script did not finish; run it again with more memory"
        ) from None
    return triples
