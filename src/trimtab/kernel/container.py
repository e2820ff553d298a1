"""A container's control group, made by any program: its counters read often and cheaply, its limits set.

Files are kept open, read with `pread` and written with `pwrite`: a tenth of the time of opening them.
"""

import contextlib
import errno
import os
from collections.abc import Iterator

from trimtab.core import TrimtabError
from trimtab.kernel.cgroup import NO_QUOTA, USUAL_PERIOD, V1, CpuCounters, codec, memory_limit, quota_of
from trimtab.kernel.closing import Closing
from trimtab.kernel.hierarchy import Hierarchy

_PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes; limits of memory are whole pages
_NO_LIMIT = -1  # instead of bytes
_MISSING = -1  # instead of an open file
_ENOUGH = 384  # bytes of a file, up to the fields that are read; allocating 512 is slower in Python
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


class GroupGoneError(TrimtabError):
    """The container's group has been removed."""


class GroupBusyError(TrimtabError):
    """More memory is in use than the new limit; the old limit stays."""


class GroupRefusedError(TrimtabError):
    """The kernel has no such limit, or does not let us set it: the same for all groups."""


class GroupForbiddenError(GroupRefusedError):
    """This process may not read or write control groups."""


class CpuRefusedError(TrimtabError):
    """This CPU limit conflicts with those of groups above or below; the old limit stays."""


class ContainerGroup(Closing):
    """A group's files, open until `close`; version 1 or 2. A missing file reads as 0 or no limit."""

    def __init__(self, hierarchy: Hierarchy, path: str) -> None:
        self.path = path
        self.version = hierarchy.version
        self._codec = files = codec(self.version)
        self._cpu_seconds, self._cpu_counters = files.cpu_seconds, files.cpu_counters
        self._folders = {name: f"{root}/{path.strip('/')}" for name, root in hierarchy.folders.items()}
        self._files: list[int] = []
        self._no_cpu: GroupRefusedError | None = None  # why its CPU cannot be limited
        self.cpus_set: float | None = None  # by us; None is no limit
        self.saved_set = 0.0  # by us, CPUs
        self.memory_set: float | None = None  # by us, bytes; None is no limit
        self._quota_set: int | None = None  # by us, microseconds; None if nothing was set
        self._bytes_set: int | None = None
        try:
            with self._kernel_errors("read"):
                self._usage = self._open(files.cpu_usage)
                self._stat = _MISSING if files.cpu_stat == files.cpu_usage else self._open(files.cpu_stat)
                self._memory = self._open(files.memory_usage)
                self._quota = self._open_quota(files.cpu_quota)
                self._burst = self._open_burst(files.cpu_burst)
                self._burst_set = int(os.pread(self._burst, 32, 0)) if self._burst >= 0 else 0
                self._period = self._read_quota()[1]
            if self._usage < 0:
                raise GroupRefusedError(
                    "the kernel does not account CPU time of control groups here; no container can be managed"
                )
        except BaseException:
            self.close()
            raise
        self._usage_seen, self._counted = b"", CpuCounters(0.0, 0, 0)

    @property
    def inode(self) -> int:
        """Inode of an open file of the group; a group that is made later has another."""
        return os.fstat(self._usage).st_ino

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())

    def cpu(self) -> CpuCounters:
        """The counters now. A group that has not run since the last call was not throttled either."""
        try:
            usage = os.pread(self._usage, _ENOUGH, 0)
            if usage == self._usage_seen:
                return self._counted
            stat = os.pread(self._stat, _ENOUGH, 0) if self._stat >= 0 else usage
        except OSError as error:
            raise self.as_error(error, "read") from None
        self._usage_seen, self._counted = usage, self._cpu_counters(usage, stat)
        return self._counted

    def used(self) -> float:
        """CPU seconds used so far: the first of the counters alone."""
        try:
            return self._cpu_seconds(os.pread(self._usage, 64, 0))
        except OSError as error:
            raise self.as_error(error, "read") from None

    def memory(self) -> int:
        """Bytes charged to it now."""
        try:
            return int(os.pread(self._memory, 32, 0)) if self._memory >= 0 else 0
        except OSError as error:
            raise self.as_error(error, "read") from None

    def memory_limit(self) -> float | None:
        """Bytes it may have; None without a limit."""
        return None if self._memory < 0 else memory_limit(self.read_text(self._codec.memory_limit))

    def cpu_limit(self) -> float | None:
        """CPUs it may use; None without a limit."""
        with self._kernel_errors("read"):
            quota, self._period = self._read_quota()
        return None if quota < 0 else quota / self._period

    def saved_limit(self) -> float:
        """CPUs that it may use in one period on top, out of quota that it left unused before."""
        with self._kernel_errors("read"):
            return int(os.pread(self._burst, 32, 0)) / self._period if self._burst >= 0 else 0.0

    def limit_cpus(self, cpus: float | None, saved: float = 0.0) -> None:
        """Allow so many CPUs in each of its periods, whose length stays; None for no limit.

        Unused quota may be used in a later period on top, up to `saved` CPUs, at most as much again.
        Between the two writes, both together are no more than before or after.
        """
        if self._no_cpu:
            raise self._no_cpu
        quota = quota_of(cpus, self._period)
        burst = min(quota, int(saved * self._period)) if self._burst >= 0 and quota > 0 else 0
        if burst < self._burst_set:
            self._set_burst(burst)
        with self._kernel_errors("written"):
            try:
                text = self._codec.quota_text(quota, self._period)
                os.pwrite(self._quota, f"{text}\n".encode(), 0)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                raise CpuRefusedError(
                    f"{self.path} cannot have {cpus} CPUs: a group above allows less, or one below has more"
                ) from None
        self.cpus_set, self._quota_set = cpus, quota
        if burst > self._burst_set:
            self._set_burst(burst)

    def limit_memory(self, count: float | None) -> None:
        """Allow so many bytes; None for no limit. Raises `GroupBusyError` where more is in use.

        Version 2 would reclaim and then kill instead of refusing, so there the use is checked before.
        """
        if self._memory < 0:
            raise GroupRefusedError("memory cannot be limited: the memory controller is off for these groups")
        number = None if count is None else int(count)
        if self.version == 1:
            # The limit of memory with swap must not be below that of memory: it grows first.
            both = V1.memory_and_swap_limit
            swap = memory_limit(self.read_text(both)) if os.path.exists(self.file(both)) else None
            if swap is not None and (number is None or number > swap):
                self.write_text(both, self._codec.memory_text(number))
        else:
            self.must_fit(count)
        self.write_text(self._codec.memory_limit, self._codec.memory_text(number))
        self.memory_set, self._bytes_set = count, _NO_LIMIT if number is None else number

    def must_fit(self, count: float | None) -> None:
        """Raise `GroupBusyError` where more than so many bytes are in use."""
        if count is not None and self.memory() > count:
            raise GroupBusyError(f"{self.path} uses more than {count:.0f} bytes; its limit stays")

    def cpu_limit_stands(self) -> bool:
        """Whether no other program has changed the CPU limit since it was set here."""
        with self._kernel_errors("read"):
            return self._quota_set is None or self._read_quota(self._period)[0] == self._quota_set

    def memory_limit_stands(self) -> bool:
        """Whether no other program has changed the memory limit since it was set here."""
        if self._bytes_set is None:
            return True
        limit = self.memory_limit()
        return (_NO_LIMIT if limit is None else limit // _PAGE) == self._bytes_set // _PAGE

    def exists(self) -> bool:
        """Whether it exists in all controllers."""
        return all(os.path.isdir(folder) for folder in self._folders.values())

    def read_text(self, name: str) -> str:
        """Contents of one of the group's files, such as "memory.oom_control"."""
        with self._kernel_errors("read"):
            file = os.open(self.file(name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.read(file, 4096).decode().strip()
            finally:
                os.close(file)

    def write_text(self, name: str, text: str) -> None:
        """Write one of the group's files."""
        with self._kernel_errors("written"):
            file = os.open(self.file(name), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
            try:
                os.write(file, text.encode())
            finally:
                os.close(file)

    def file(self, name: str) -> str:
        """Path of one of the group's files; in version 1 below its controller."""
        controller = self._codec.controller(name)
        if controller not in self._folders:
            raise GroupRefusedError(f"no {controller} controller is mounted here")
        return f"{self._folders[controller]}/{name}"

    def as_error(self, error: OSError, what: str) -> TrimtabError:
        """The kernel's error as a TrimtabError; `what` completes "cannot be …": "read", "written"."""
        if error.errno == errno.ENODEV or (error.errno == errno.ENOENT and not self.exists()):
            return GroupGoneError(f"the group {self.path} is gone")
        if error.errno == errno.ENOENT:
            return GroupRefusedError(f"the kernel has no {os.path.basename(error.filename)} for these groups")
        if error.errno == errno.EBUSY:
            return GroupBusyError(f"{self.path} uses more memory than that; its limit stays")
        if error.errno in _FORBIDDEN:
            return self._forbidden(error, what)
        return TrimtabError(f"the group {self.path} cannot be {what}: {error.strerror}")

    def _forbidden(self, error: OSError, what: str) -> GroupForbiddenError:
        why = f"{error.strerror}; that takes root, and control groups mounted for writing"
        return GroupForbiddenError(f"control groups cannot be {what}: {why}")

    @contextlib.contextmanager
    def _kernel_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.as_error(error, what) from None

    def _set_burst(self, microseconds: int) -> None:
        with self._kernel_errors("written"):
            os.pwrite(self._burst, f"{microseconds}\n".encode(), 0)
        self._burst_set, self.saved_set = microseconds, microseconds / self._period

    def _open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Open a file of the group; `_MISSING` where the kernel does not have it."""
        if self._codec.controller(name) not in self._folders:
            return _MISSING
        try:
            self._files.append(os.open(self.file(name), flags | os.O_CLOEXEC))
        except FileNotFoundError:
            if not self.exists():
                raise
            return _MISSING
        return self._files[-1]

    def _open_quota(self, name: str) -> int:
        try:
            file = self._open(name, os.O_RDWR)
        except OSError as error:
            if error.errno not in _FORBIDDEN:
                raise
            self._no_cpu = self._forbidden(error, "written")
            return self._open(name)
        if file == _MISSING:
            self._no_cpu = GroupRefusedError(
                f"CPU cannot be limited, there is no {name}: the kernel was built without it, "
                "or the cpu controller is off for these groups"
            )
        return file

    def _open_burst(self, name: str) -> int:
        """Kernels before 5.14 have none."""
        try:
            return self._open(name, os.O_RDWR)
        except OSError as error:
            if error.errno not in _FORBIDDEN:
                raise
            return _MISSING

    def _read_quota(self, known: int | None = None) -> tuple[int, int]:
        """Quota and period in microseconds; a `known` period is not read again from a file of its own."""
        if self._quota < 0:
            return NO_QUOTA, USUAL_PERIOD
        quota, period = self._codec.quota(os.pread(self._quota, 64, 0))
        return quota, period or known or int(self.read_text(V1.cpu_period))
