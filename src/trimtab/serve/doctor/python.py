"""The interpreter, and for each extra the packages it needs."""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, requires

from trimtab.serve.doctor.finding import Finding, missing, ok
from trimtab.serve.settings import Settings

DISABLES = {
    "learn": "profiles and plans of PyTorch models, learned predictions",
    "postgres": "a store in PostgreSQL",
    "gpu": "watching NVIDIA accelerators",
    "kubernetes": "kubernetes://, pods for trimtab agent",
    "onnx": "plans for ONNX files",
    "ray": "running a Ray cluster from here (ray:// needs none)",
    "rivals": "some of what benches compare with",
    "serve": "the API and the dashboard",
}
"""What goes without each extra's packages."""

_REQUIREMENT = re.compile(r'([\w.-]+)[^;]*;.*extra == ["\']([\w-]+)["\']')
_LEAST = (3, 11)


def look(settings: Settings) -> Iterator[Finding]:
    """The version first, then every extra for users."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= _LEAST:
        yield ok("Python", found, needed=True)
    else:
        yield missing("Python", found, "everything", "install Python 3.11 or later", needed=True)
    packages = extras()
    for extra, disables in DISABLES.items():
        absent = [name for name in packages.get(extra, ()) if not _installed(name)]
        if absent:
            yield missing(
                f"extra {extra}",
                f"no {', '.join(absent)}",
                disables,
                f"pip install 'trimtab[{extra}]'",
                extra in _needed(settings),
            )
        else:
            yield ok(f"extra {extra}", ", ".join(packages.get(extra, ())) or "nothing needed")


def extras() -> dict[str, list[str]]:
    """By extra, the packages that this Trimtab was installed to want with it."""
    found: dict[str, list[str]] = {}
    for line in requires("trimtab") or ():
        match = _REQUIREMENT.match(line)
        if match is not None:
            found.setdefault(match[2], []).append(match[1])
    return found


def _needed(settings: Settings) -> set[str]:
    """Extras without which these settings cannot be used."""
    wanted = {
        "postgres": settings.store.startswith("postgres"),
        "kubernetes": settings.engine.startswith("kubernetes:"),
    }
    return {extra for extra, is_wanted in wanted.items() if is_wanted}


def _installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
