"""Time: kept in step with others', without jumps, fine enough for periods of 100 ms."""

import ctypes
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from trimtab.core import format_duration
from trimtab.serve.doctor.finding import Finding, missing, ok, warning
from trimtab.serve.settings import Settings

_TIMEX = 256  # bytes; struct timex is shorter on every machine
_MAXERROR, _STATUS = 24, 40  # offsets in it, where longs have 64 bits
_UNSYNCHRONISED = 0x40
_WATCHED = 0.05  # s
_JUMP = 0.005  # s between the two clocks within that time
_COARSE = 0.001  # s
_OLDEST = 1_735_689_600.0  # the start of 2025, before any of this was written
_QUICK_SOURCES = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "xen")
_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_KEEP = "timedatectl set-ntp true, or apt-get install chrony"


def look(settings: Settings) -> Iterator[Finding]:
    """The wall clock, the monotonic one, and what both are read from."""
    yield _wall()
    yield _synchronised()
    yield _jumps()
    yield _resolution()
    yield _source()


def _wall() -> Finding:
    now = time.time()
    seen = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < _OLDEST:
        return missing(
            "date",
            seen,
            "certificates and tokens, which are not valid yet",
            f"{_KEEP}; or date -s",
            needed=True,
        )
    return ok("date", seen)


def _synchronised() -> Finding:
    """By `adjtimex`, which changes nothing when no mode is asked for."""
    told = ctypes.create_string_buffer(_TIMEX)
    disables = "comparing times between machines, short-lived tokens"
    if ctypes.CDLL(None, use_errno=True).adjtimex(told) < 0:
        return warning("synchronised", "the kernel does not say", disables, _KEEP)
    (error,) = struct.unpack_from("=q", told, _MAXERROR)
    (status,) = struct.unpack_from("=i", told, _STATUS)
    if status & _UNSYNCHRONISED:
        return warning("synchronised", "with nobody", disables, _KEEP)
    return ok("synchronised", f"to within {format_duration(error / 1e6)}")


def _jumps() -> Finding:
    before = time.time() - time.monotonic()
    time.sleep(_WATCHED)
    moved = time.time() - time.monotonic() - before
    seen = f"{format_duration(abs(moved))} between wall and monotonic clock in {format_duration(_WATCHED)}"
    if abs(moved) > _JUMP:
        disables = "times in the ledger; decisions go by the monotonic clock"
        return warning("jumps", seen, disables, "let one program keep the time: timedatectl status")
    return ok("jumps", seen)


def _resolution() -> Finding:
    seconds = time.clock_getres(time.CLOCK_MONOTONIC)
    seen = format_duration(seconds)
    if seconds > _COARSE:
        return warning(
            "resolution", seen, "periods of 100 ms: trimtab agent", "a kernel with high-resolution timers"
        )
    return ok("resolution", seen)


def _source() -> Finding:
    try:
        source = _SOURCE.read_text().strip()
    except OSError:
        return ok("source", "not told here")
    if source in _QUICK_SOURCES:
        return ok("source", source)
    return warning(
        "source",
        source,
        "cheap looks at the time: trimtab agent, benches",
        f"echo tsc > {_SOURCE}, if it is there",
    )
