"""`recommend` and `partition` agree about the same step: one estimates the step, the other its operations."""

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest

from trimtab.catalog import accelerator
from trimtab.core import Model, Operators, Profile
from trimtab.partition import Graph, Plan, Recipe, Stage, devices_of, evaluate, load_graph
from trimtab.predict import AnalyticEstimator, Hardware, Operations, Placements, operation_times
from trimtab.predict.cost.constants import calibration, device_rates
from trimtab.predict.cost.demand import Demand, demand_of_operations, stack, summed
from trimtab.predict.cost.step_time import step_time

KINDS = np.array(
    ["embedding", "norm", "matmul", "attention", "matmul", "elementwise", "conv", "view", "conv"]
)
MODELS = "trimtab_bench.partition.models"
# A trace knows FLOP of convolutions and attention only as a share of all, a graph those of each operation.
TOLERANCE = 0.10


def _operations(samples: float) -> Operations:
    work = np.array([0, 0, 4e9, 1e9, 4e9, 0, 6e9, 0, 2e9]) * samples
    weights = np.array([0, 0, 2e7, 0, 2e7, 0, 1e5, 0, 4e6])
    return Operations(KINDS, np.ones(9), work, np.full(9, 4e6) * samples, weights)


def _step(operations: Operations, training: bool, precision: str) -> Demand:
    """The demand of the whole step that the operations are."""
    passes = (False, True) if training else (False,)
    whole = summed(stack(demand_of_operations(operations, b, training, precision) for b in passes))
    values = {f.name: getattr(whole, f.name) for f in fields(Demand)}
    return Demand(**values | {"updated_bytes": operations.weight_bytes.sum() * training})


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("samples", [1.0, 256.0])
@pytest.mark.parametrize("name", ["H200", "A100", "T4"])
def test_operations_add_up_to_the_step_that_they_are(
    name: str, samples: float, precision: str, training: bool
) -> None:
    facts, operations = accelerator(name), _operations(samples)
    hardware = Hardware(facts.name, facts.peak, facts.memory_bandwidth)
    times = operation_times(operations, hardware, precision, training)
    whole = step_time(
        _step(operations, training, precision), device_rates(facts, precision), calibration(facts).step
    )
    assert times.total == pytest.approx(float(np.sum(whole.total)), rel=1e-9)


def _traced(graph: Graph) -> Model:
    """The facts of a model as the trace of a run has them, from the operations of its graph."""

    def at(samples: float) -> Demand:
        operations = Operations(
            kinds=np.array(graph.kinds),
            calls=graph.calls,
            flop=graph.flop * samples,
            traffic=graph.traffic * samples * (4.0 / graph.element),
            weight_bytes=graph.parameters * 4.0,
        )
        return _step(operations, True, "fp32")

    one, two = at(1.0), at(2.0)

    def amount(name: str, calls: str | None, phase: str, kind: str) -> Operators:
        first, second = (float(np.sum(getattr(item, name))) if name else 0.0 for item in (one, two))
        per_sample = second - first
        count = float(np.sum(getattr(one, calls))) if calls else 0.0
        return Operators(phase, kind, count, first - per_sample, per_sample, per_sample / 3)

    operators = [
        *(
            amount(f"{phase}_{name}_bytes", f"{phase}_{name}_calls", phase, kind)
            for phase in ("forward", "backward")
            for name, kind in (("conv", "conv"), ("matmul", "matmul"))
        ),
        *(
            amount(f"{phase}_light_bytes", f"{phase}_other_calls", phase, "norm")
            for phase in ("forward", "backward")
        ),
        *(
            amount("", f"{phase}_{name}_calls", phase, kind)
            for phase in ("forward", "backward")
            for name, kind in (("attention", "attention"), ("small", "view"))
        ),
        amount("copied_bytes", None, "forward", "copy"),
    ]
    weights = 4.0 * float(graph.parameters.sum())
    return Model(
        parameters=int(graph.parameters.sum()),
        parameter_bytes=weights,
        buffer_bytes=0.0,
        modules=1,
        layers=(),
        optimizer="SGD",
        optimizer_state_bytes=weights,
        precision="fp32",
        forward_flop_per_sample=float(graph.flop.sum()),
        step_flop_per_sample=3.0 * float(graph.flop.sum()),
        saved_fixed_bytes=0.0,
        saved_sample_bytes=float(graph.saved.sum()),
        operators=tuple(operators),
    )


@pytest.mark.parametrize("model", ["decoder", "convolutions"])
@pytest.mark.parametrize("device", ["H200", "A100"])
@pytest.mark.parametrize("batch", [4, 64])
def test_a_plan_for_one_device_takes_what_the_step_is_estimated_at(
    model: str,
    device: str,
    batch: int,
    make_profile: Callable[..., Profile],
    place: Callable[..., Placements],
) -> None:
    pytest.importorskip("torch")
    graph = load_graph(f"{MODELS}:{model}")
    plan = Plan((Stage(tuple(range(len(graph))), ((0,),)),), (batch,), 1)
    forecast = evaluate(graph, devices_of(f"{device}:1"), Recipe(batch, "tf32"), plan)
    profile = make_profile(_traced(graph))
    estimate = AnalyticEstimator(profile, "tf32").estimate(place({"device": device, "batch": batch}))
    assert forecast.seconds == pytest.approx(float(estimate.total[0]), rel=TOLERANCE)
