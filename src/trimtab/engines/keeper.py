"""The process beside a run: starts the command in its control group, waits, and writes down how it ended.

It outlives the Trimtab that launched the run, so that a restarted one still learns the exit status. What the
command leaves running when it ends, ends with it. It is told `{"folder": …, "command": […]}` on its standard
input, where no other user can read it, and answers with `{"refused": …}`: a sentence, or null once it runs.
Its standard error is the run's log.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from trimtab.core import TrimtabError
from trimtab.engines.kept_run import End, KeptRun, Start
from trimtab.kernel import LimitedGroup, read_process

_UNHEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def keep() -> None:
    """The whole life of the process."""
    told = json.loads(sys.stdin.readline() or "null")
    if told is None:  # whoever launched it died in the middle
        return
    run = KeptRun(Path(told["folder"]))
    group = run.group()
    for number in _UNHEARD:
        signal.signal(number, signal.SIG_IGN)
    try:
        child = _start(told["command"], group)
        me = read_process(os.getpid())
        run.keep(Start(time.time(), child.pid, os.getpid(), me.started if me else 0))
    except TrimtabError as error:
        group.remove()
        _answer(str(error))
        return
    _answer(None)
    status = child.wait()
    kills = group.out_of_memory_kills()
    group.remove()
    run.keep(End(time.time(), 128 - status if status < 0 else status, kills))


def _start(command: Sequence[str], group: LimitedGroup) -> "subprocess.Popen[bytes]":
    def prepare() -> None:
        """In the child, before the command."""
        for number in _UNHEARD:
            signal.signal(number, signal.SIG_DFL)
        group.add(os.getpid())

    try:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            preexec_fn=prepare,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise TrimtabError(f'there is no command "{command[0]}"; check its name and your PATH') from None
    except PermissionError:
        raise TrimtabError(f'"{command[0]}" is not executable; make it so or name its interpreter') from None
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise TrimtabError(f'"{command[0]}" cannot be run: {why.lower()}') from None


def _answer(refused: str | None) -> None:
    with contextlib.suppress(OSError):  # nobody may be there any more
        os.write(sys.stdout.fileno(), json.dumps({"refused": refused}).encode() + b"\n")
    with contextlib.suppress(OSError):
        os.close(sys.stdout.fileno())
