"""When a device is done with what it was given."""

import time

import torch


def now(device: torch.device) -> float:
    """Seconds on this machine's clock, once the device has done all it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
