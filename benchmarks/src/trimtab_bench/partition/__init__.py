"""Splitting models over unequal devices: against the optimum, against others, and with measured steps."""

from trimtab_bench.harness import BenchOptions, BenchResult


def run(options: BenchOptions) -> BenchResult:
    """Run all sections; they are imported late, because other processes load the models alone."""
    from trimtab_bench.partition.sections import all_sections

    return all_sections(options)
