"""Accelerators, as NVIDIA's management library shows them."""

from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from trimtab.observe import Gpus
from trimtab.serve.doctor.finding import Finding, missing, ok
from trimtab.serve.settings import Settings

_DRIVER = Path("/proc/driver/nvidia/version")
_DISABLES = "accelerators for local:// jobs, their columns in profiles"


def look(settings: Settings) -> Iterator[Finding]:
    """What there is, or at which step it is lost: driver, library, permission."""
    gpus = Gpus()
    try:
        names = Counter(gpus.names())
    finally:
        gpus.close()
    if names:
        yield ok("NVIDIA devices", ", ".join(f"{count} × {name}" for name, count in names.items()))
    elif not _DRIVER.exists():
        mend = "nothing, on a machine without one; else NVIDIA's driver"
        yield missing("NVIDIA devices", "no driver is loaded", _DISABLES, mend)
    elif find_spec("pynvml") is None:
        mend = "pip install 'trimtab[gpu]'"
        yield missing("NVIDIA devices", "a driver, but no library to ask it", _DISABLES, mend)
    else:
        mend = "nvidia-smi says why; in a container, pass the devices in"
        yield missing("NVIDIA devices", "a driver that shows no device", _DISABLES, mend)
