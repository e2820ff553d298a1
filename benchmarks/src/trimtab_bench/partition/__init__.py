"""Splitting models over unequal devices: beside the optimum, beside others, and for real."""

from trimtab_bench.harness import BenchOptions, BenchResult


def run(options: BenchOptions) -> BenchResult:
    """All sections. Loaded here, because the models in this package are also used without them."""
    from trimtab_bench.partition.sections import all_sections

    return all_sections(options)
