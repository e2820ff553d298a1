"""The server under load: requests, event streams, pages of a large store, and a leader that is killed.

The server is `trimtab up` as a process of its own, on a store with 10,000 jobs and 1,000,000 decisions; the
load generator is another process on the same machine, with an open-loop plan.
"""

from trimtab_bench.harness import BenchOptions, BenchResult


def run(options: BenchOptions) -> BenchResult:
    """Run all sections; they are imported late, because other processes use parts of this package."""
    from trimtab_bench.serve.report import all_sections

    return all_sections(options)
