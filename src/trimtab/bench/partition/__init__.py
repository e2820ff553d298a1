"""Splitting models over unequal devices: beside the optimum, beside others, and for real."""

from trimtab.bench.options import BenchOptions
from trimtab.bench.result import BenchResult


def run(options: BenchOptions) -> BenchResult:
    """All sections. Loaded here, because the models in this package are also used without them."""
    from trimtab.bench.partition.sections import all_sections

    return all_sections(options)
