"""What to expect of a plan, whoever made it."""

import numpy as np

from trimtab.core import BadInputError
from trimtab.partition.cost.assumptions import Assumptions
from trimtab.partition.cost.node_times import NodeTimes
from trimtab.partition.cost.timeline import Slot, StageTimes, timeline
from trimtab.partition.devices import Devices
from trimtab.partition.graph import Graph, Ints
from trimtab.partition.layout import Layout
from trimtab.partition.plan import DeviceUse, Forecast, Plan, Recipe
from trimtab.partition.problem import Cost, bytes_per_weight, problem_of, usable_memory


def evaluate(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    plan: Plan,
    assume: Assumptions | None = None,
    times: NodeTimes | None = None,
) -> Forecast:
    """Step time by playing the schedule through, memory of every device, and what limits the plan."""
    assume = assume or Assumptions()
    times = times or NodeTimes(graph, recipe, assume)
    cost = cost_of(graph, devices, recipe, plan, assume, times)
    slots = timeline(stage_times(cost), plan.microbatches, plan.schedule, recipe.training)
    seconds = _seconds(slots, cost)
    uses = _uses(cost, plan, recipe)
    short = max(use.memory - usable_memory(devices[use.device]) for use in uses)
    error = [times.on(devices[use.device], max(plan.shares), plan.tensor) for use in uses]
    prices = [devices[use.device].price for use in uses]
    known = [price for price in prices if price is not None]
    busy = float(np.sum(cost.forward + cost.backward)) * plan.microbatches
    return Forecast(
        seconds=seconds,
        low=seconds * min(each.low for each in error),
        high=seconds * max(each.high for each in error),
        latency=cost.latency,
        bottleneck=max(float(cost.load.max()), float(cost.hand.max(initial=0.0))),
        synchronisation=float(cost.once.max()),
        bubble=max(0.0, 1.0 - busy / (len(set(cost.rows.tolist())) * seconds)),
        stage_forward=tuple(cost.forward.tolist()),
        stage_backward=tuple(cost.backward.tolist()),
        transfers=tuple(cost.hand.tolist()),
        uses=uses,
        fits=short <= 0.0 and bool(np.isfinite(seconds)),
        short=max(0.0, short),
        idle=float(sum(max(0.0, devices[use.device].memory - use.memory) for use in uses)),
        batch=plan.batch,
        price=sum(known) if len(known) == len(prices) else None,
    )


def play(graph: Graph, devices: Devices, recipe: Recipe, plan: Plan) -> tuple[Slot, ...]:
    """Which stage computes which micro-batch when."""
    cost = cost_of(graph, devices, recipe, plan)
    return timeline(stage_times(cost), plan.microbatches, plan.schedule, recipe.training)


def cost_of(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    plan: Plan,
    assume: Assumptions | None = None,
    times: NodeTimes | None = None,
) -> Cost:
    """The plan's columns over its stages."""
    rows = tuple(dict.fromkeys(stage.ranks for stage in plan.stages))
    problem = problem_of(graph, devices, recipe, Layout.of(plan), rows, assume, times)
    return problem.cost(_stage_of(graph, plan), [rows.index(stage.ranks) for stage in plan.stages])


def _stage_of(graph: Graph, plan: Plan) -> Ints:
    where = np.array(plan.stage_of(len(graph)), dtype=np.int64)
    if (where < 0).any():
        raise BadInputError(f"the plan leaves out {graph.names[int(np.argmin(where))]}")
    back = where[graph.producer[graph.used]] > where[graph.user]
    if back.any():
        use = int(np.argmax(back))
        source = graph.names[graph.producer[graph.used[use]]]
        target = graph.names[graph.user[use]]
        raise BadInputError(f"the plan runs {target} in a stage before that of what it needs, {source}")
    return where


def stage_times(cost: Cost) -> StageTimes:
    """What a schedule is played with."""
    forward, hand = cost.forward.copy(), cost.hand
    if not cost.problem.overlapped:
        forward[:-1] += cost.problem.trips * hand
    return StageTimes(forward.tolist(), cost.backward.tolist(), hand.tolist(), cost.rows.tolist())


def _seconds(slots: tuple[Slot, ...], cost: Cost) -> float:
    """When the last stage has updated its weights."""
    end = np.zeros(len(cost.rows))
    for slot in slots:
        end[slot.stage] = max(end[slot.stage], slot.end)
    return float((end + np.bincount(cost.rows, cost.once)[cost.rows]).max())


def _uses(cost: Cost, plan: Plan, recipe: Recipe) -> tuple[DeviceUse, ...]:
    """Every device in use, with all of its stages."""
    split = np.array(bytes_per_weight(recipe, cost.problem.layout))
    weights, gradients, state = (split / split.sum()).tolist()
    stages: dict[int, list[int]] = {}
    replica_of: dict[int, int] = {}
    for device, stage, replica in plan.devices():
        stages.setdefault(device, []).append(stage)
        replica_of[device] = replica
    found = []
    for device, mine in stages.items():
        resident = float(cost.memory.resident[mine].sum())
        found.append(
            DeviceUse(
                device=device,
                stages=tuple(mine),
                replica=replica_of[device],
                weights=resident * weights,
                gradients=resident * gradients,
                optimizer=resident * state,
                activations=float(cost.memory.held[mine].sum()),
                workspace=float(cost.memory.passing[mine].max()) + cost.problem.base,
                busy=float((cost.forward + cost.backward)[mine].sum()) * plan.microbatches
                + float(cost.once[mine].sum()),
            )
        )
    return tuple(found)
