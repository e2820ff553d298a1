"""Where FRR is on this machine, and whether it is one that can be used."""

import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trimtab.core import MissingDependencyError

DAEMONS = ("zebra", "bfdd", "bgpd")
"""In the order in which they are started."""

USER = "frr"
_FOLDERS = (Path("/usr/lib/frr"), Path("/usr/libexec/frr"), Path("/usr/sbin"), Path("/usr/local/sbin"))
_LEAST_VERSION = (8, 0)  # next hop groups in the kernel together with BFD at 10 ms
_INSTALL = "apt-get install frr"


@dataclass(frozen=True, slots=True)
class Programs:
    """The folder of the daemons, the command that talks to them, and FRR's version."""

    folder: Path
    vtysh: Path
    version: str


@cache
def find_programs() -> Programs:
    """FRR as it is installed; a sentence when it is not, or is too old."""
    folder = next((folder for folder in _FOLDERS if (folder / DAEMONS[0]).is_file()), None)
    if folder is None:
        raise MissingDependencyError(f"FRR is not installed here: {_INSTALL}")
    absent = [name for name in DAEMONS if not (folder / name).is_file()]
    if absent:
        raise MissingDependencyError(
            f"FRR in {folder} has no {' and no '.join(absent)}; install a whole one: {_INSTALL}"
        )
    vtysh = shutil.which("vtysh")
    if vtysh is None:
        raise MissingDependencyError(f"FRR's vtysh is not installed here: {_INSTALL}")
    _check_user()
    return Programs(folder, Path(vtysh), _checked_version(folder / DAEMONS[0]))


def _check_user() -> None:
    try:
        pwd.getpwnam(USER)
    except KeyError:
        raise MissingDependencyError(
            f"there is no user {USER} here, as whom FRR's daemons run: {_INSTALL}"
        ) from None


def _checked_version(zebra: Path) -> str:
    """`zebra --version` begins with "zebra version 8.4.4"."""
    told = subprocess.run([zebra, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"version (\d+)\.(\d+)\S*", told)
    if match is None:
        raise MissingDependencyError(f"{zebra} does not tell its version; install a working FRR: {_INSTALL}")
    if (int(match[1]), int(match[2])) < _LEAST_VERSION:
        raise MissingDependencyError(
            f"FRR {match[0].split()[1]} is too old; {'.'.join(map(str, _LEAST_VERSION))} or later is needed"
        )
    return match[0].split()[1]
