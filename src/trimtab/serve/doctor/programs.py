"""Programs that parts of Trimtab call; none is needed for the rest."""

import shutil
from collections.abc import Iterator

from trimtab.core import MissingDependencyError
from trimtab.serve.doctor.finding import Finding, missing, ok
from trimtab.serve.settings import Settings

PROGRAMS = (
    ("ip", "trimtab fabric", "apt-get install iproute2"),
    ("tc", "the fabric's data plane flower", "apt-get install iproute2"),
    ("prlimit", "real-time priority for the fabric's bfdd", "apt-get install util-linux"),
    ("sbatch", "slurm://", "apt-get install slurm-client"),
    (
        "kubectl",
        "applying packaging/kubernetes (kubernetes:// needs none)",
        "kubectl 1.22 or later from the Kubernetes project; Debian 12 has an older one",
    ),
    ("runc", "trimtab bench resize", "apt-get install runc"),
    ("clang", "compiling the fabric's packet program anew, for developers", "apt-get install clang"),
    ("bpftool", "looking at the fabric's packet program, for developers", "apt-get install bpftool"),
)
"""Name, what goes without, and how to get it on Debian."""


def look(settings: Settings) -> Iterator[Finding]:
    """FRR is more than one program and has to be of some version; the others need only be there."""
    yield _frr()
    for name, disables, mend in PROGRAMS:
        path = shutil.which(name)
        if path is not None:
            yield ok(name, path)
        else:
            is_needed = name == "sbatch" and settings.engine.startswith("slurm:")
            yield missing(name, "not on the PATH", disables, mend, is_needed)


def _frr() -> Finding:
    from trimtab.fabric import find_programs

    try:
        found = find_programs()
    except MissingDependencyError as error:
        return missing("FRR", str(error), "trimtab fabric up, its lab", "apt-get install frr")
    return ok("FRR", f"{found.version} in {found.folder}")
