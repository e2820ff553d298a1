"""Splitting models over unequal devices: beside the optimum, beside others, and for real."""

from trimtab_bench.options import BenchOptions
from trimtab_bench.result import BenchResult


def run(options: BenchOptions) -> BenchResult:
    """All sections. Loaded here, because the models in this package are also used without them."""
    from trimtab_bench.partition.sections import all_sections

    return all_sections(options)
