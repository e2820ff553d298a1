"""What this machine has to give: as one node, or as several that it pretends to be."""

import math
import os
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl

from trimtab.core import BadInputError, Node, parse_bytes, refuse_unknown
from trimtab.kernel import cpu_limit, memory_limit

_MOST_NODES = 10_000


def machine() -> tuple[float, float]:
    """CPUs and bytes of memory there are for runs."""
    cpus = float(len(os.sched_getaffinity(0)))
    memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(cpus, cpu_limit() or cpus), min(memory, memory_limit() or memory)


def nodes_at(address: str) -> tuple[Node, ...]:
    """What comes after `local://`: nothing for this machine, or what it pretends to be, `?nodes=3&gpus=4`."""
    if not address:
        return (_this_machine(),)
    if not address.startswith("?"):
        raise BadInputError(
            f'after local:// comes nothing, or something like ?nodes=3&gpus=4, not "{address}"'
        )
    told = dict(parse_qsl(address[1:], keep_blank_values=True))
    refuse_unknown(f"local://{address}", told, tuple(_KINDS))
    given = {name: _value(name, text) for name, text in told.items()}
    return _pretended(given, told.get("accelerator", ""))


def _this_machine() -> Node:
    from trimtab.catalog import find_accelerator
    from trimtab.observe import Gpus

    gpus = Gpus()
    names = gpus.names()
    gpus.close()
    cpus, memory = machine()
    known = find_accelerator(names[0]) if names else None
    kind = known.name if known else "".join(names[:1])
    return Node("local", cpus, memory, kind, len(names))


def _pretended(given: Mapping[str, float], accelerator: str) -> tuple[Node, ...]:
    cpus, memory = machine()
    gpus = int(given.get("gpus", 1 if accelerator else 0))
    if gpus and not accelerator:
        accelerator = "gpu"
    return tuple(
        Node(f"local-{number}", given.get("cpus", cpus), given.get("memory", memory), accelerator, gpus)
        for number in range(1, int(given.get("nodes", 1)) + 1)
    )


def _whole(least: int) -> Callable[[str], float]:
    def parse(text: str) -> float:
        if not text.isdecimal() or not least <= int(text) <= _MOST_NODES:
            raise ValueError(f"a whole number from {least} to {_MOST_NODES}")
        return int(text)

    return parse


def _cpus(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError("a number above 0")
    return value


def _memory(text: str) -> float:
    value = parse_bytes(text)
    if value <= 0:
        raise ValueError("a size such as 4GiB")
    return value


_KINDS: Mapping[str, Callable[[str], float]] = {
    "nodes": _whole(1),
    "cpus": _cpus,
    "memory": _memory,
    "gpus": _whole(0),
    "accelerator": lambda text: 0.0,
}


def _value(name: str, text: str) -> float:
    try:
        return _KINDS[name](text)
    except ValueError as error:
        raise BadInputError(f'local://?{name}= takes {error}, not "{text}"') from None
