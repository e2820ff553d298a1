"""Traffic that survives dead links: outages, false failovers, training, throughput, and reconciling.

Everything happens in labs on this machine, one after the other, with real FRR and real agents. Every section
is a module with `parts`, `figures` and `tables`; finished parts are kept.
"""

from trimtab_bench.harness import BenchOptions, BenchResult


def run(options: BenchOptions) -> BenchResult:
    """Run all sections; they are imported late, because other processes use parts of this package."""
    from trimtab_bench.fabric.sections import all_sections

    return all_sections(options)
