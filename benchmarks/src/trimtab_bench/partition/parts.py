"""All that is measured, as parts: each by itself, and kept when it is done."""

from collections.abc import Iterator
from functools import partial

from trimtab_bench.kept import Part
from trimtab_bench.options import BenchOptions
from trimtab_bench.partition import cases, gpu_stages, large, prediction, small, speed

SPEED_RUNS = 3


def parts_of(options: BenchOptions) -> list[Part]:
    """Everything; what is timed comes first, so that the rest may share the machine."""
    return [
        *_small(options),
        *_speed(options),
        *_prediction(options),
        *_large(options),
    ]


def _small(options: BenchOptions) -> Iterator[Part]:
    for number in range(small.QUICK_CASES if options.quick else small.CASES):
        yield Part(("small", str(number)), partial(small.small_figures, number, options.seed))


def _large(options: BenchOptions) -> Iterator[Part]:
    for case in cases.cases(options.quick):
        for method in large.METHODS:
            yield Part(("large", case.name, method), partial(large.large_figures, case, method))


def _speed(options: BenchOptions) -> Iterator[Part]:
    for seed in range(options.seed, options.seed + (1 if options.quick else SPEED_RUNS)):
        yield Part(("ten_thousand", str(seed)), partial(speed.solving_seconds, speed.NODES, seed))
    yield Part(("gpt3",), partial(speed.command_figures, "gpt3_175b"))


def _prediction(options: BenchOptions) -> Iterator[Part]:
    for name, run in prediction.runs(options.quick).items():
        yield Part(("prediction", name), run)
    yield Part(("gpu_stages",), gpu_stages.stage_errors)
