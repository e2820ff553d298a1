"""How much memory a process came to use, beyond what it had."""

from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class PeakMemory:
    """Bytes that a process's memory grew at its peak since this was made: of a GPU, or resident."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        _CLEAR.write_text("5")
        self._before = _kilobytes("VmRSS")

    def grown(self) -> float:
        """Bytes at the peak so far, more than at the start."""
        if self._device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self._device))
        return max(0.0, (_kilobytes("VmHWM") - self._before) * 1024.0)


def _kilobytes(field: str) -> float:
    line = next(row for row in _STATUS.read_text().splitlines() if row.startswith(field + ":"))
    return float(line.split()[1])
