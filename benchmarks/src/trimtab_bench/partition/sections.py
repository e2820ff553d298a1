"""The sections of the bench, put together.

Small random graphs beside an exact solver, whole models beside every rival by the same forecast, how long a
large graph and a large model take, and predicted beside measured steps. Finished parts are kept.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import trimtab
from trimtab_bench.kept import Kept, Key, done
from trimtab_bench.options import BenchOptions
from trimtab_bench.partition import cases, large, prediction, small
from trimtab_bench.partition.goals import goals
from trimtab_bench.partition.gpu_stages import BUNDLED
from trimtab_bench.partition.parts import parts_of
from trimtab_bench.partition.tables import tables
from trimtab_bench.result import BenchResult

_UNRELATED = {"workflow", "exports", "fewshot", "foundation", "durations", "encoder", "correction", "data"}
"""Folders that have no part in it."""
_READ = {".py", ".toml", ".json"}


def all_sections(options: BenchOptions) -> BenchResult:
    """What `trimtab bench partition` answers with."""
    parts = parts_of(options)
    kept = Kept.of("partition", _made_from(options))
    with options.progress(len(parts), "splitting") as tell:
        figures = put_together(done(parts, kept, tell), options)
    rivals = {
        case: {name: each["throughput"] for name, each in by.items() if name not in large.OURS}
        for case, by in figures["large"].items()
    }
    return BenchResult("partition", figures, {"throughput": rivals}, {}, options.seed, tables(figures))


def put_together(found: Mapping[Key, Any], options: BenchOptions) -> dict[str, Any]:
    """The figures, from what all parts answered."""
    by_case: dict[str, dict[str, Any]] = {}
    for key, value in found.items():
        if key[0] == "large":
            by_case.setdefault(key[1], {})[key[2]] = value
    kinds = {case.name: case.on.kind for case in cases.cases(options.quick)}
    over = {ours: large.over_accelerate(by_case, kinds, ours) for ours in large.OURS}
    took = [value["seconds"] for key, value in found.items() if key[0] == "ten_thousand"]
    runs = {key[1]: value for key, value in found.items() if key[0] == "prediction"}
    figures: dict[str, Any] = {
        "small": small.summary([value for key, value in found.items() if key[0] == "small"]),
        "large": by_case,
        "kinds": kinds,
        "fits": large.fits(by_case, large.METHODS),
        "over_accelerate": over,
        "geomean_over_accelerate": over[large.HYBRID]["geomean"],
        "checks": {
            "beaten_by": large.beaten(by_case, large.HYBRID),
            "pipelines_beaten_by": large.beaten(by_case, large.PIPELINE),
            "idler_than": large.idler(by_case, large.HYBRID),
        },
        "seconds_10k_nodes": median(took),
        "ten_thousand": {"least": min(took), "most": max(took), "runs": len(took)},
        "gpt3": found[("gpt3",)],
        "prediction": prediction.summary(runs),
        "gpu_stages": found[("gpu_stages",)],
    }
    figures["prediction_error"] = figures["prediction"]["median"]
    figures["goals"] = goals(figures)
    return figures


def _made_from(options: BenchOptions) -> Iterator[bytes]:
    """What was asked for, the code that is measured and measures, and what it reads of devices and stages."""
    yield repr((options.quick, options.seed)).encode()
    here = Path(__file__).resolve().parent
    rooms = Path(trimtab.__file__).parent
    measured = (rooms / room for room in ("partition", "predict", "catalog"))
    for folder in (here, BUNDLED.parent, *measured):
        for path in sorted(folder.rglob("*")):
            if path.suffix in _READ and not _UNRELATED & set(path.relative_to(folder).parts):
                yield path.read_bytes()
