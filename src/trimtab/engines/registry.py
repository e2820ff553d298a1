"""Which engines there are. One more is one module, and one line in `ENGINES`."""

from collections.abc import Callable, Mapping
from pathlib import Path

from trimtab.core import Engine, NotFoundError
from trimtab.engines.kubernetes.engine import KubernetesEngine
from trimtab.engines.local.engine import LocalEngine
from trimtab.engines.ray.engine import RayEngine
from trimtab.engines.slurm.engine import SlurmEngine

ENGINES: Mapping[str, Callable[[str, Path | None], Engine]] = {
    "local": LocalEngine,
    "kubernetes": KubernetesEngine,
    "ray": RayEngine,
    "slurm": SlurmEngine,
}
"""Each is made from what comes after `://` in its address, and the folder in which it keeps its runs."""


def engine(url: str, place: Path | None = None) -> Engine:
    """The engine an address such as `local://` names.

    In a `place` of one's own, only one's own runs are there to be watched; without one, those of everybody.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ENGINES:
        there = ", ".join(f"{name}://" for name in ENGINES)
        raise NotFoundError(f'no engine is called "{url}"; there are {there}')
    return ENGINES[scheme](rest, place)
