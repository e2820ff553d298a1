"""Parts of the bench done two at a time, each in a process of its own, and kept."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

from trimtab_bench.kept import Kept, Key, Part
from trimtab_bench.one_thread import one_thread_each

WORKERS = 2


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
        with one_thread_each(), ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
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
