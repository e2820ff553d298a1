"""Traffic that survives dead links: outages, mistakes, training, throughput, and how soon tables follow.

Everything happens in labs on this machine, one after the other, with real FRR and real agents. Every question
is a module with `parts`, `figures` and `tables`; finished parts are kept.
"""

from trimtab_bench.harness import BenchOptions, BenchResult


def run(options: BenchOptions) -> BenchResult:
    """All sections. Loaded here, because processes of this package are also run without them."""
    from trimtab_bench.fabric.sections import all_sections

    return all_sections(options)
