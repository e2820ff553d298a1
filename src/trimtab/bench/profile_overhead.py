"""What watching costs: the step time of a training script with `trimtab profile` and without, run in turns.

The script times its own steps, so start and end of the process, the traced step and the first steps do not
count. A run's step time is the fastest tenth's border, since other load on the machine only ever makes a step
longer. Each round runs the script bare, watched and bare again: watched against the mean of both is the
overhead, and the second bare run against the first is the control that shows how much of it is noise. The
peer is Python's own profiler on the same script.
"""

import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from trimtab.bench.options import BenchOptions
from trimtab.bench.result import BenchResult, Table
from trimtab.core import MissingDependencyError, StorageError
from trimtab.core.units import format_duration
from trimtab.observe import Settings, profile

PROMISED = 0.02
"""The share of the step time that watching may add."""

_SCRIPT = """
import json, sys, time
import torch
from torch import nn
model_name, steps, answer = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.manual_seed(0)
torch.set_num_threads(1)
if model_name == "small":
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    shape = (32, 256)
else:
    layers = [nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(32, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    shape = (8, 3, 32, 32)
data = torch.utils.data.TensorDataset(torch.randn(256, *shape[1:]), torch.randint(0, 10, (256,)))
loader = torch.utils.data.DataLoader(data, batch_size=shape[0])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
ends = []
while len(ends) < steps:
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        ends.append(time.perf_counter())
json.dump(ends, open(answer, "w"))
"""
_SKIP = 10  # steps: the listener looks closely at the third, and the first ones warm up


@dataclass(frozen=True, slots=True)
class Case:
    """A model, and how many steps of it one run takes."""

    name: str
    steps: int


CASES = (Case("small", 1500), Case("larger", 400))


def run(options: BenchOptions) -> BenchResult:
    """Measure both cases; `quick` makes fewer rounds."""
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError(
            "the bench trains with PyTorch; install it with: pip install 'trimtab[learn]'"
        )
    rounds: dict[str, list[Round]] = {case.name: [] for case in CASES}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(_SCRIPT)
        work = [case for _ in range(3 if options.quick else 9) for case in CASES]
        random.Random(options.seed).shuffle(work)
        for case in options.track(work, "profile overhead"):
            bare, watched, again = (_step(script, case, watched) for watched in (False, True, False))
            rounds[case.name].append(Round(bare, watched, again))
        peers = {case.name: _peer_step(script, case) for case in CASES}
    figures = {name: _figures(done) for name, done in rounds.items()}
    added = {name: peers[name] / figures[name]["step"] - 1 for name in peers}
    return BenchResult(
        bench="profile-overhead",
        figures={f"{name}_{what}": value for name, found in figures.items() for what, value in found.items()},
        baselines={"cProfile": added},
        published={"Trimtab's promise": {"overhead": PROMISED}},
        seed=options.seed,
        tables=(_table(figures, added),),
    )


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of a step in three runs one after the other."""

    bare: float
    watched: float
    bare_again: float

    @property
    def overhead(self) -> float:
        """The share that watching added."""
        return 2 * self.watched / (self.bare + self.bare_again) - 1

    @property
    def control(self) -> float:
        """The share that nothing added."""
        return self.bare_again / self.bare - 1


def _figures(rounds: list[Round]) -> dict[str, float]:
    overheads, controls = ([getattr(r, what) for r in rounds] for what in ("overhead", "control"))
    return {
        "overhead": statistics.median(overheads),
        "low": min(overheads),
        "high": max(overheads),
        "control": statistics.median(controls),
        "control_low": min(controls),
        "control_high": max(controls),
        "step": statistics.median(r.bare for r in rounds),
    }


def _step(script: Path, case: Case, watched: bool) -> float:
    """Seconds of a step, by the script's own clock."""
    answer = script.with_name("ends.json")
    command = (sys.executable, str(script), case.name, str(case.steps), str(answer))
    if watched:
        profile(command, Settings(window=600.0, full=True))
    else:
        subprocess.run(command, check=False)
    return _read_answer(answer)


def _peer_step(script: Path, case: Case) -> float:
    answer = script.with_name("ends.json")
    statistics_file = os.fspath(script.with_name("peer"))
    steps = str(max(2 * _SKIP, case.steps // 4))
    command = (
        sys.executable,
        "-m",
        "cProfile",
        "-o",
        statistics_file,
        str(script),
        case.name,
        steps,
        str(answer),
    )
    subprocess.run(command, check=False)
    return _read_answer(answer)


def _read_answer(path: Path) -> float:
    try:
        ends = json.loads(path.read_text())
        path.unlink()
    except (OSError, ValueError):
        raise StorageError(
            "the bench's training script did not finish; run it again with more memory"
        ) from None
    steps = [after - before for before, after in pairwise(ends[_SKIP:])]
    return float(statistics.quantiles(steps, n=10)[0])


def _table(figures: dict[str, dict[str, float]], peers: dict[str, float]) -> Table:
    rows = tuple(
        (
            name,
            format_duration(found["step"]),
            f"{found['overhead']:+.2%} ({found['low']:+.2%} to {found['high']:+.2%})",
            f"{found['control']:+.2%} ({found['control_low']:+.2%} to {found['control_high']:+.2%})",
            f"{peers[name]:+.0%}",
        )
        for name, found in figures.items()
    )
    columns = ("model", "step", "trimtab profile", "control: nothing", "cProfile")
    return Table("Step time added by watching: median (range)", columns, rows)
