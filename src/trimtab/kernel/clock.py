"""A clock that setting the machine's time does not move."""

import contextlib
import os
import time
from pathlib import Path

from trimtab.core import StorageError, home
from trimtab.kernel.files import write_whole

_BOOT = Path("/proc/sys/kernel/random/boot_id")  # of the kernel: a new container changes no time


def seconds_since_boot() -> float:
    """Time that nobody can set, and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """Seconds since the Unix epoch, as the time of the boot plus the seconds since then.

    The first process after a boot writes the time of the boot into Trimtab's home folder, and all others take
    it from there. So their times agree, and a duration between two of them is right, even if the machine's
    wall clock is set in between. Without a folder to write to, each process begins with the wall clock.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.boot = _boot_time(folder or home())

    def now(self) -> float:
        return self.boot + self.monotonic()

    def monotonic(self) -> float:
        return seconds_since_boot()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

    def moved(self) -> float:
        """Seconds by which the wall clock was set forward since the boot's time was written."""
        return time.time() - self.now()


def _boot_time(folder: Path) -> float:
    """Seconds since the Unix epoch at which this machine was booted, as the first process saw it."""
    boot = time.time() - seconds_since_boot()
    with contextlib.suppress(OSError, ValueError, StorageError):
        path = folder / f"boot-{_BOOT.read_text().strip()}"
        if not path.exists():
            own = folder / f".{path.name}-{os.getpid()}-{time.monotonic_ns()}"
            write_whole(own, f"{boot!r}\n")
            with contextlib.suppress(FileExistsError):
                os.link(own, path)
            own.unlink()
            for old in folder.glob("boot-*"):
                if old != path:
                    old.unlink(missing_ok=True)
        boot = float(path.read_text())
    return boot
