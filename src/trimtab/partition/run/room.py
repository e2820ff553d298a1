"""Whether this machine has room for a run."""

from trimtab.core import BadInputError, format_bytes
from trimtab.partition.graph import Graph
from trimtab.partition.plan import STATE_NUMBERS, Plan, Recipe

PROCESS = 400e6
"""Bytes that a process with PyTorch takes before it does anything."""


def check_room(graph: Graph, plan: Plan, recipe: Recipe) -> None:
    """Refuse a run whose weights and processes alone do not fit into this machine's free memory.

    The whole model is trained once, and every replica of the plan; a weight is kept with its gradient and its
    optimizer's state in fp32.
    """
    import psutil

    free = float(psutil.virtual_memory().available)
    numbers = graph.total_parameters * (2 + STATE_NUMBERS[recipe.optimizer])
    processes = sum(1 for _ in plan.devices())
    needed = 4.0 * numbers * (1 + plan.replicas) + PROCESS * processes
    if needed > free:
        raise BadInputError(
            f"running {graph.name} in {processes} processes here takes at least {format_bytes(needed)}, "
            f"but {format_bytes(free)} are free; export the plan with --torchrun and run it where it fits"
        )
