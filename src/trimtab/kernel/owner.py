"""Names that say who made a thing: what a killed Trimtab left behind can be told from what is in use."""

import os
import re
from dataclasses import dataclass

from trimtab.kernel.process import read_process

_NAME = re.compile(r"trimtab-(\d+)-(\d+)-(\d+)-([a-z0-9]+)")


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, by pid namespace (inode), pid and start time (clock ticks since boot)."""

    namespace: int
    pid: int
    started: int

    @classmethod
    def current(cls) -> "Owner":
        """This process."""
        me = read_process(os.getpid())
        return cls(_namespace(), os.getpid(), me.started if me else 0)

    @classmethod
    def of(cls, name: str) -> "Owner | None":
        """Who made the thing of that name; None when the name is not one of ours."""
        match = _NAME.fullmatch(name)
        return cls(int(match[1]), int(match[2]), int(match[3])) if match else None

    def name(self, label: str) -> str:
        """A name for something of this owner; `label` is of lower-case letters and digits."""
        return f"trimtab-{self.namespace}-{self.pid}-{self.started}-{label}"

    def is_gone(self) -> bool:
        """Whether it has ended. A process of another pid namespace cannot be seen and counts as alive."""
        if self.namespace != _namespace():
            return False
        found = read_process(self.pid)
        return found is None or found.started != self.started or found.zombie


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
