"""Configurations of distributed training: our seven jobs, seen and unseen, and searches of others' files."""

from collections.abc import Iterator
from pathlib import Path

from trimtab.predict.jobs import training
from trimtab.predict.jobs.training import SHIPPED, read_data
from trimtab_bench.kept import Kept
from trimtab_bench.options import BenchOptions
from trimtab_bench.result import BenchResult
from trimtab_bench.training_config import jobs, seen, unseen
from trimtab_bench.training_config.data import data_figures, data_table
from trimtab_bench.training_config.hindsight import best_first_choices, first_choices_table
from trimtab_bench.training_config.parallel import done_side_by_side
from trimtab_bench.training_config.search import search_section


def run(options: BenchOptions) -> BenchResult:
    """All sections; finished parts are kept."""
    data = read_data()
    parts = jobs.parts(options, data)
    kept = Kept.of("training-config", _made_from(options))
    with options.progress(len(parts), "learning and asking") as tell:
        figures = jobs.figures(done_side_by_side(parts, kept, tell), data)
    figures["points"].update(data_figures(data))
    searched, search_tables = search_section(options)
    if options.data is not None:
        searched["hindsight"] = best_first_choices(options.data)
        search_tables = (*search_tables, first_choices_table(searched["hindsight"]))
    published = {"seen": seen.PUBLISHED, "unseen.auc": unseen.PUBLISHED}
    baselines = {
        "seen": figures["seen"]["methods"],
        "unseen": figures["unseen"]["methods"],
        "after_trials": figures["unseen"]["after_trials"],
    }
    return BenchResult(
        "training-config",
        {**figures, **searched},
        baselines,
        published,
        options.seed,
        (data_table(figures["points"]), *jobs.tables(figures), *search_tables),
    )


def _made_from(options: BenchOptions) -> Iterator[bytes]:
    """What was asked for, the data, and the code that learns and asks."""
    yield repr((options.quick, options.seed)).encode()
    here = Path(__file__).resolve().parent
    asking = [here / f"{name}.py" for name in ("jobs", "seen", "trials", "unseen")]
    learning = sorted(Path(training.__path__[0]).glob("*.py"))
    for path in (*asking, *learning, *sorted(SHIPPED.glob("points.*"))):
        yield path.read_bytes()
