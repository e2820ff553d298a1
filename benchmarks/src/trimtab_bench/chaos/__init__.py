"""Chaos: the whole system as a user runs it, while processes, clocks, disk and database fail; and a verdict.

`trimtab up` with its processes and runs, and a resize agent with containers, are killed, stopped and started
again by a plan that one seed determines. Clients submit jobs and follow event streams all the while.
"""

from trimtab_bench.harness import BenchOptions, BenchResult


def run(options: BenchOptions) -> BenchResult:
    """Run on each store; parts are imported late, because other processes use modules of this package."""
    from trimtab_bench.chaos.report import all_stores

    return all_stores(options)
