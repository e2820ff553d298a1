"""Parts of the bench done two at a time, each in a process of its own, and kept."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from trimtab.bench.kept import Kept, Key, Part

WORKERS = 2
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def done_side_by_side(parts: Sequence[Part], kept: Kept, tell: Callable[[object], None]) -> dict[Key, Any]:
    """What every part answered: before, or now; in the order of the parts."""
    found = dict[Key, Any]()
    for part in parts:
        known = kept.load(part.file)
        if known is not None:
            found[part.key] = json.loads(known)
            tell(part)
    left = [part for part in parts if part.key not in found]
    if left:
        with _one_thread_each(), ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
            running = {pool.submit(part.run): part for part in left}
            try:
                for finished in as_completed(running):
                    part = running[finished]
                    answer = json.dumps(finished.result())
                    kept.save(part.file, answer.encode())
                    found[part.key] = json.loads(answer)
                    tell(part)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return {part.key: found[part.key] for part in parts}


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """For processes that begin meanwhile."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
