"""Child processes of another process."""

import contextlib

import psutil


def companions(of: int, entry: str) -> list[psutil.Process]:
    """Living children of a process that run this function."""
    found = []
    for each in psutil.Process(of).children():
        with contextlib.suppress(psutil.Error):  # it has just ended
            if entry in " ".join(each.cmdline()) and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
    return found
