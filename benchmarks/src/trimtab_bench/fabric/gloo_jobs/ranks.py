"""The processes of one job, wherever they are started: followed, killed, and never left behind."""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Self

from trimtab.collect import StepLines
from trimtab.core import TrimtabError
from trimtab.kernel import die_with_parent, end_groups
from trimtab_bench.fabric.gloo_jobs.job import Job
from trimtab_bench.fabric.gloo_jobs.marks import Marks

_LAST_WORDS = 4096  # bytes


Start = Callable[..., "subprocess.Popen[Any]"]
"""Called with a rank, its command as words, and options of `subprocess.Popen`; starts it where it is to run.

A lab's `run` is one: rank 0 on its first host, rank 1 on the second.
"""


def on_loopback(rank: int, words: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """All ranks on this machine; they die with the thread that starts them."""
    return subprocess.Popen(words, preexec_fn=lambda: die_with_parent(signal.SIGKILL), **options)


class Ranks:
    """Running ranks of a job; made by `started`. The first one's output is read, all the others' is not."""

    def __init__(
        self,
        children: Sequence["subprocess.Popen[bytes]"],
        errors: Sequence[IO[bytes]],
        begun: float,
        attempt: int,
    ) -> None:
        self.steps, self.marks = StepLines(), Marks()
        self.begun, self.attempt = begun, attempt
        self.fault: float | None = None  # when something was done to it
        self._children, self._errors = children, errors
        output = children[0].stdout
        assert output is not None
        os.set_blocking(output.fileno(), False)
        self._output = output
        self._selector = selectors.DefaultSelector()
        self._selector.register(output, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._selector.close()

    @property
    def last_step(self) -> int:
        """The number of the last step that has ended; 0 before the first."""
        return self.steps.steps[-1].number if self.steps.steps else 0

    def listen(self, seconds: float) -> None:
        """Take in what is printed, for so long at most."""
        if not self._selector.get_map():
            time.sleep(seconds)
        elif self._selector.select(seconds):
            self._read()

    def finished(self) -> bool:
        """Whether all ranks have ended well."""
        done = all(each.poll() == 0 for each in self._children)
        if done:
            self._read()
        return done

    def failure(self) -> str:
        """How the first of them ended that did not end well; "" where none did."""
        for rank, each in enumerate(self._children):
            if (code := each.poll()) not in (None, 0):
                self._read()
                return self._how_it_ended(rank, code or 0)
        return ""

    def kill(self, rank: int) -> None:
        """As a crash of its host would, without a word."""
        self.mark_fault()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._children[rank].pid, signal.SIGKILL)
        self._children[rank].wait()

    def mark_fault(self) -> None:
        """Note that something was done to the job just now; the first time counts."""
        self.fault = self.fault or time.time()

    def _read(self) -> None:
        if not self._selector.get_map():
            return
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._output.fileno(), 65536):
                self.steps.feed(chunk)
                self.marks.feed(chunk)
            self._selector.unregister(self._output)  # nobody writes to it any more

    def _how_it_ended(self, rank: int, code: int) -> str:
        if code < 0:
            return f"rank {rank} was killed by {signal.Signals(-code).name}"
        errors = self._errors[rank]
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - _LAST_WORDS))
        said = errors.read().decode(errors="replace").strip().splitlines() or [self.steps.last_words]
        return f"rank {rank} ended with status {code}" + (f": {said[-1]:.200}" if said[-1] else "")


@contextlib.contextmanager
def started(job: Job, start: Start = on_loopback, attempt: int = 1) -> Iterator[Ranks]:
    """All ranks of the job; leaving the context leaves no process behind."""
    port = _free_port()
    with contextlib.ExitStack() as stack:
        children = list["subprocess.Popen[bytes]"]()
        stack.callback(end_groups, children)
        errors = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(job.ranks)]
        begun = time.time()
        for rank in range(job.ranks):
            children.append(_start(job, rank, port, start, errors[rank]))
        yield stack.enter_context(Ranks(children, errors, begun, attempt))


def _start(job: Job, rank: int, port: int, start: Start, errors: IO[bytes]) -> "subprocess.Popen[bytes]":
    words = job.command()
    try:
        return start(
            rank,
            words,
            cwd=job.folder,
            env={**os.environ, **job.variables(rank, port)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            stderr=errors,
            process_group=0,
        )
    except OSError as error:
        raise TrimtabError(f'rank {rank}: "{words[0]}" cannot be started: {error.strerror}') from None


def _free_port() -> int:
    """One that nobody uses here; a namespace made for the job has nobody in it anyway."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
