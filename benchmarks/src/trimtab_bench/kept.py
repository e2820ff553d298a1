"""Parts of a long bench that are done, kept on disk until code, data or options change."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from trimtab.core import home
from trimtab.kernel import write_whole
from trimtab_bench.one_thread import one_thread_each

Key = tuple[str, ...]

_SIDE_BY_SIDE = 2  # processes
_CHECKSUM = hashlib.sha256().digest_size  # bytes at the end of a file


@dataclass(frozen=True, slots=True)
class Kept:
    """A folder with a file per finished part, named by what it came from."""

    folder: Path

    @classmethod
    def of(cls, bench: str, made_from: Iterable[bytes]) -> "Kept":
        """Where a bench keeps what is done: `made_from` is all that its parts depend on."""
        digest = hashlib.sha256()
        for piece in made_from:
            digest.update(piece)
        return cls(home() / "bench" / bench / digest.hexdigest()[:16])

    def load(self, name: str) -> bytes | None:
        """A part; None if it has to be done, or what was kept is damaged."""
        path = self.folder / name
        whole = path.read_bytes() if path.exists() else b""
        content, checksum = whole[:-_CHECKSUM], whole[-_CHECKSUM:]
        return content if hashlib.sha256(content).digest() == checksum else None

    def save(self, name: str, content: bytes) -> None:
        """Keep a part."""
        write_whole(self.folder / name, content + hashlib.sha256(content).digest())


@dataclass(frozen=True, slots=True)
class Part:
    """A name such as ("workloads", "saturn-1", "trimtab"), and what to do; `of`: what it depends on."""

    key: Key
    run: Callable[[], Any]
    of: str = ""

    @property
    def file(self) -> str:
        """What it is kept as."""
        return "-".join(re.sub(r"\W+", "_", word) for word in (*self.key, self.of) if word) + ".json"


def done(parts: Iterable[Part], kept: Kept, tell: Callable[[object], None]) -> dict[Key, Any]:
    """What every part answered: before, or now."""
    found = {}
    for part in parts:
        known = kept.load(part.file)
        if known is None:
            known = json.dumps(part.run()).encode()
            kept.save(part.file, known)
        found[part.key] = json.loads(known)
        tell(part)
    return found


def done_side_by_side(parts: Sequence[Part], kept: Kept, tell: Callable[[object], None]) -> dict[Key, Any]:
    """Results of all parts, in their order: those kept, the others computed two at a time in processes."""
    found = dict[Key, Any]()
    for part in parts:
        known = kept.load(part.file)
        if known is not None:
            found[part.key] = json.loads(known)
            tell(part)
    left = [part for part in parts if part.key not in found]
    if left:
        with one_thread_each(), ProcessPoolExecutor(_SIDE_BY_SIDE, mp_context=get_context("spawn")) as pool:
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
