"""Scale of sizing containers: deciding, sampling, granting memory, and many nodes at once.

Deciding is timed for 100,000 containers in 1,000 pools, in CPU time of the one thread that does it. Sampling
and granting happen in real control groups that the bench makes and removes; without the right to make them,
these figures are left out. The nodes of a cluster are simulated agents, over the real link, to a controller
that has one core.
"""

import time
from collections.abc import Callable

import numpy as np

from trimtab.kernel import NoGroupError, sweep_groups
from trimtab.resize import Controller, Pool, Selector
from trimtab_bench.harness import BenchOptions, BenchResult, ResultTable
from trimtab_bench.resize_scale.agents import link_figures
from trimtab_bench.resize_scale.node import grant_figures, sample_figures

CONTAINERS = 100_000
POOLS = 1_000
POLICIES = ("trimtab", "escra")
_WARM_UP = 5  # steps

GOALS = {"allocator_ms_100k": 50.0, "sample_us": 8.0, "oom_grant_p99_ms": 5.0, "missed_periods": 0.0}

Figures = dict[str, float]

MEASURES: dict[str, Callable[[BenchOptions], Figures]] = {
    "sample_us": sample_figures,
    "oom_grant_p99_ms": grant_figures,
    "missed_periods": link_figures,
}


def run(options: BenchOptions) -> BenchResult:
    """Measure everything; what this machine does not allow is named in the table instead."""
    sweep_groups()
    decided = {name: allocator_figures(name, options) for name in options.track(POLICIES, "deciding")}
    figures = dict(decided[POLICIES[0]])
    skipped = list[tuple[str, ...]]()
    for name, measure in MEASURES.items():
        try:
            figures |= measure(options)
        except NoGroupError as error:
            skipped.append((name, f"{GOALS[name]:g}", f"left out: {error}", ""))
    rivals = {name: decided[name] for name in POLICIES[1:]}
    if "sample_reopened_us" in figures:
        rivals["opening files every time"] = {"sample_us": figures.pop("sample_reopened_us")}
    rows = [
        (name, f"{GOALS[name]:g}", f"{figures[name]:.3g}", _spread(name, figures))
        for name in GOALS
        if name in figures
    ]
    return BenchResult(
        bench="resize-scale",
        figures=figures,
        baselines=rivals,
        published={"Escra (section 2.6.9.3)": {"containers_per_core_at_100_ms": 1192}},
        seed=options.seed,
        tables=(
            ResultTable("Sizing containers", ("figure", "goal", "measured", "spread"), (*rows, *skipped)),
        ),
    )


def allocator_figures(policy: str, options: BenchOptions) -> Figures:
    """CPU time of one decision for all containers: observing, deciding, taking, giving."""
    steps = 20 if options.quick else 100
    # Each container has its usual share of a CPU, wavering, with a burst now and then.
    random = np.random.default_rng(options.seed)
    usual = random.lognormal(-1.5, 1.0, CONTAINERS)
    pool = random.integers(POOLS, size=CONTAINERS)
    # Some pools have room, some are full.
    caps = np.bincount(pool, usual, POOLS) * random.uniform(0.8, 2.0, POOLS)
    controller = Controller(
        [Pool(f"pool{i}", cap, 1e12, (Selector(f"/{i}/*"),), policy=policy) for i, cap in enumerate(caps)]
    )
    slots = np.array([controller.join(number) for number in pool.tolist()])
    seconds = []
    for _ in range(_WARM_UP + steps):
        limit = controller.column("cpus")
        bursts = np.where(random.random(CONTAINERS) < 0.02, 4.0, 1.0)
        wanted = usual * random.lognormal(0.0, 0.3, CONTAINERS) * bursts
        used, throttled = np.minimum(wanted, limit), wanted > limit
        start = time.thread_time()
        controller.observe(slots, used, throttled)
        controller.decide(0.1)
        controller.confirm(controller.takes())
        controller.confirm(controller.gives())
        seconds.append(time.thread_time() - start)
    seconds = seconds[_WARM_UP:]
    return {
        "allocator_ms_100k": float(np.median(seconds)) * 1e3,
        "allocator_worst_ms": max(seconds) * 1e3,
        "allocator_steps": steps,
    }


def _spread(name: str, figures: Figures) -> str:
    texts = {
        "allocator_ms_100k": "worst {allocator_worst_ms:.3g} of {allocator_steps} steps",
        "sample_us": "worst {sample_worst_us:.3g}; if idle {sample_idle_us:.3g}; a glance {glance_us:.3g}",
        "oom_grant_p99_ms": "median {oom_grant_p50_ms:.3g}, worst {oom_grant_worst_ms:.3g} of {oom_traps}",
        "missed_periods": "answers p99 {answer_p99_ms:.0f}, worst {answer_worst_ms:.0f} ms of {answers}",
    }
    return texts[name].format(**figures)
