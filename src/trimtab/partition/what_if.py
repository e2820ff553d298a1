"""Which change would speed a plan up most, by asking for the forecast of each."""

from dataclasses import replace

from trimtab.partition.cost.evaluate import evaluate
from trimtab.partition.devices import Device, Devices
from trimtab.partition.graph import Graph
from trimtab.partition.plan import Forecast, Plan, Recipe

_WORTH_NAMING = 1.02
_MOST_NAMED = 3


def would_help(graph: Graph, devices: Devices, recipe: Recipe, plan: Plan, forecast: Forecast) -> str:
    """The changes that help and what each gives, best first: links, a kind of device, the batch."""
    changes = {
        "links twice as fast": (Devices(devices.devices, devices.bandwidth * 2, devices.latency / 2), plan),
        "twice the batch, in twice as many micro-batches": (
            devices,
            replace(plan, microbatches=plan.microbatches * 2),
        ),
    }
    for kind in dict.fromkeys(devices[use.device].kind for use in forecast.uses):
        faster = tuple(_twice_as_fast(d) if d.kind == kind else d for d in devices.devices)
        changes[f"every {kind} twice as fast"] = (Devices(faster, devices.bandwidth, devices.latency), plan)
    gains = {}
    for name, (others, changed) in changes.items():
        other = evaluate(graph, others, replace(recipe, batch=changed.batch), changed)
        gains[name] = (other.batch / other.seconds) / (forecast.batch / forecast.seconds)
    ranked = sorted(gains.items(), key=lambda gain: -gain[1])
    named = [f"{name} ({gain:.2f}×)" for name, gain in ranked if gain >= _WORTH_NAMING]
    if not named:
        return "nothing alone would help much: neither links nor devices nor the batch hold it back"
    return f"what would help most, in samples per second: {', '.join(named[:_MOST_NAMED])}"


def _twice_as_fast(device: Device) -> Device:
    return replace(
        device,
        peak={name: 2 * rate for name, rate in device.peak.items()},
        memory_bandwidth=2 * device.memory_bandwidth,
        cores=2 * device.cores,
    )
