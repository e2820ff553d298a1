"""The search bench measures what it says it does."""

from trimtab_bench import BenchOptions, run_bench


def test_it_covers_the_sizes_it_claims() -> None:
    figures = run_bench("search", BenchOptions(quick=True, quiet=True)).figures
    assert figures["configurations"] >= 20_000
    assert figures["offers"] == 60_000
    assert figures["search_seconds"] > 0
    assert figures["query_ms"] > 0
