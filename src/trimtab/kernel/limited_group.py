"""A control group that limits what runs in it: CPU by quota or by weight, memory by a ceiling."""

from pathlib import Path
from typing import ClassVar

from trimtab.kernel.group import Group, NoGroupError, keyed
from trimtab.kernel.hierarchy import Hierarchy, passing_down

# The kernel knows no quota below this, in microseconds.
_SHORTEST_QUOTA = 1000
# Version 2 counts weights from 1 to 10000 where version 1 counts shares from 2 to 262144; 100 is 1024.
_SHARES_PER_WEIGHT = 1024 / 100


class LimitedGroup(Group):
    """A group with limits. Without any set, it limits nothing."""

    _without: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def _parent(cls, hierarchy: Hierarchy | None) -> Hierarchy:
        parent = passing_down(super()._parent(hierarchy))
        if parent is None:
            raise NoGroupError("no control group here passes limits of CPU and memory down to a new one")
        return parent

    def limit_cpus(self, cpus: float | None, period: float = 0.1) -> None:
        """At most so many CPUs in every `period` seconds; None for no limit.

        v2's `cpu.max` is "quota period" in microseconds or "max period"; v1 has a file for each, -1 is none.
        """
        microseconds = round(period * 1e6)
        quota = None if cpus is None else max(_SHORTEST_QUOTA, round(cpus * microseconds))
        if self.version == 2:
            _write(self._folders[""] / "cpu.max", f"{'max' if quota is None else quota} {microseconds}")
            return
        folder = self._folders["cpu"]
        _write(folder / "cpu.cfs_quota_us", "-1")
        _write(folder / "cpu.cfs_period_us", str(microseconds))
        _write(folder / "cpu.cfs_quota_us", str(-1 if quota is None else quota))

    def weigh_cpu(self, shares: float) -> None:
        """Its part of a busy CPU in proportion to its neighbours' shares; 1024 is everybody's default."""
        if self.version == 2:
            weight = min(10_000, max(1, round(shares / _SHARES_PER_WEIGHT)))
            _write(self._folders[""] / "cpu.weight", str(weight))
        else:
            _write(self._folders["cpu"] / "cpu.shares", str(max(2, round(shares))))

    def limit_memory(self, count: float) -> None:
        """At most so many bytes, and no swap where the kernel lets that be said."""
        limit = str(round(count))
        if self.version == 2:
            folder = self._folders[""]
            _write(folder / "memory.max", limit)
            if (swap := folder / "memory.swap.max").exists():
                _write(swap, "0")
            return
        folder = self._folders["memory"]
        files = [folder / "memory.limit_in_bytes"]
        if (both := folder / "memory.memsw.limit_in_bytes").exists():
            # Memory with swap may never be less than memory: whichever grows, grows first.
            files.insert(0 if count > float(both.read_text()) else 1, both)
        for file in files:
            _write(file, limit)

    def throttled(self) -> tuple[int, float]:
        """In how many periods the quota ran out, and for how many seconds in all.

        `cpu.stat` has "nr_throttled 12" and, in v2, "throttled_usec 34567", in v1 "throttled_time" in ns.
        """
        if self.version == 2:
            stat = keyed(self._folders[""] / "cpu.stat")
            return int(stat.get("nr_throttled", 0)), stat.get("throttled_usec", 0.0) / 1e6
        stat = keyed(self._folders["cpu"] / "cpu.stat")
        return int(stat.get("nr_throttled", 0)), stat.get("throttled_time", 0.0) / 1e9

    def out_of_memory_kills(self) -> int:
        """How many processes of the group the kernel has killed for want of memory."""
        if self.version == 2:
            return int(keyed(self._folders[""] / "memory.events").get("oom_kill", 0))
        return int(keyed(self._folders["memory"] / "memory.oom_control").get("oom_kill", 0))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise NoGroupError(f"{path.name} of a control group cannot be set: {error.strerror}") from None
