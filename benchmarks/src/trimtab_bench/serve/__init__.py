"""The server under load: requests, event streams, pages of a large store, and a leader that is killed.

The server is `trimtab up` as a process of its own, on a store with 10,000 jobs and 1,000,000 decisions; who
asks is another process on the same machine, by a plan that does not wait for answers.
"""

from trimtab_bench.harness import BenchOptions, BenchResult


def run(options: BenchOptions) -> BenchResult:
    """All sections. Loaded here, because processes of this package are also run without them."""
    from trimtab_bench.serve.report import all_sections

    return all_sections(options)
