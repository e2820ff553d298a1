"""Time of a recommendation over 20,000 configurations, and of a catalog query over 60,000 offers.

The offers are the bundled ones repeated under invented regions; the model is one of the measured ones.
"""

from dataclasses import replace
from statistics import median

from trimtab.catalog import OfferTable, load_offers
from trimtab.core import Host, Profile, Series, Steps, Workload
from trimtab.predict import BUNDLED_STEPS, read_measurements
from trimtab.recommend import Request, recommend, work
from trimtab_bench.harness import BenchOptions, BenchResult, ResultTable, seconds_of

CONFIGURATIONS = 20_000
OFFERS = 60_000


def run(options: BenchOptions) -> BenchResult:
    """Time both; the median of several rounds, the first one apart because it fills caches."""
    rounds = range(3 if options.quick else 15)
    offers = _repeated(load_offers(), OFFERS)
    few = offers.select(range(CONFIGURATIONS * 5 // 4 // 8))
    profile = resnet50_profile()
    job = work(profile)
    considered = recommend(profile, few, Request(max_nodes=8), job).considered
    searches = [seconds_of(lambda: recommend(profile, few, Request(max_nodes=8), job)) for _ in rounds]
    queries = [
        seconds_of(
            lambda: offers.where(cloud="aws", region="us-*", accelerator="A10G", min_memory=32e9).offers()
        )
        for _ in rounds
    ]
    figures = {
        "search_seconds": median(searches),
        "search_first_seconds": searches[0],
        "configurations": considered,
        "query_ms": median(queries) * 1e3,
        "offers": len(offers),
    }
    rows = (
        ("recommend", f"{considered:,} configurations", f"{figures['search_seconds'] * 1e3:.0f} ms"),
        ("catalog query", f"{len(offers):,} offers", f"{figures['query_ms']:.1f} ms"),
    )
    table = ResultTable("Median time", ("what", "size", "time"), rows)
    return BenchResult("search", figures, {}, {}, options.seed, (table,))


def _repeated(offers: OfferTable, count: int) -> OfferTable:
    rows = offers.offers()
    return OfferTable.from_offers(
        replace(rows[i % len(rows)], region=f"{rows[i % len(rows)].region}-{i // len(rows)}")
        for i in range(count)
    )


def resnet50_profile() -> Profile:
    """Profile of ResNet-50 on two CPU cores."""
    row = next(r for r in read_measurements(BUNDLED_STEPS) if r.name == "resnet50" and r.device == "cpu")
    return Profile(
        id="bench",
        created=0.0,
        workload=Workload("resnet50", command=("python", "train.py")),
        host=Host("bench", 2.0, 16e9),
        window=1.0,
        every=1.0,
        method="process-tree",
        ended="exited",
        status=0,
        series=Series(time=(0.0,), cpu=(2.0,), memory=(4e9,)),
        model=row.model,
        steps=Steps(
            (row.seconds or 1.0,), row.batch, workers=1, device="cpu", dataset_length=1_281_167, epochs=90.0
        ),
    )
