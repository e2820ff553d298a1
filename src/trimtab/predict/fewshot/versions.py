"""The models of this machine: the shipped weights, and versions that learned from outcomes.

A version is a file of weights whose card names its origin. One more small file names the current version.
Both are written atomically, the weights first: after any interruption the current version can be read.
"""

import contextlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from trimtab.core import BadInputError, NotFoundError, TrimtabError, home
from trimtab.kernel import file_lock, write_whole
from trimtab.predict.fewshot.foundation import Foundation, load_foundation, shipped_foundation

SHIPPED_VERSION = "shipped"

_KEPT = 5  # newest versions that are not removed; nor are the current one and its parent
_NAME = re.compile(r"v([1-9]\d{0,8})")


@dataclass(frozen=True, slots=True)
class Current:
    """The current version, and since when (seconds since the epoch)."""

    name: str = SHIPPED_VERSION
    since: float = -math.inf


@dataclass(frozen=True, slots=True)
class Versions:
    """The folder of versions; it is created by the first write."""

    folder: Path = field(default_factory=lambda: home() / "models")

    @property
    def current(self) -> Current:
        """The current version by the pointer file; an error when that cannot be read."""
        try:
            pointer = json.loads(self._pointer.read_text(encoding="utf-8"))
            return Current(str(pointer["version"]), float(pointer["since"]))
        except FileNotFoundError:
            return Current()
        except (OSError, ValueError, LookupError, TypeError):
            raise BadInputError(
                f"{self._pointer} is damaged and does not name the current version; "
                f"set it with trimtab models rollback {SHIPPED_VERSION}"
            ) from None

    @property
    def since(self) -> float:
        """Since when the current version answers; minus infinity where that is not known."""
        try:
            return self.current.since
        except TrimtabError:
            return -math.inf

    @property
    def names(self) -> tuple[str, ...]:
        """All versions, oldest first; the shipped weights are always the first."""
        matches = (_NAME.fullmatch(path.stem) for path in self.folder.glob("v*.safetensors"))
        numbers = sorted(int(match[1]) for match in matches if match)
        return (SHIPPED_VERSION, *(f"v{number}" for number in numbers))

    def load(self, name: str) -> Foundation:
        """The weights of a version."""
        if name == SHIPPED_VERSION:
            return shipped_foundation()
        if name not in self.names:
            raise NotFoundError(f'there is no model version "{name:.40}", only {", ".join(self.names)}')
        return load_foundation(self._path(name))

    def add(self, foundation: Foundation) -> str:
        """Write weights as the next version, read them back, and return its name; it is not current yet."""
        last = self.names[-1]
        name = f"v{int(last[1:]) + 1 if last != SHIPPED_VERSION else 1}"
        path = self._path(name)
        about = {**foundation.card.get("version", {}), "name": name}
        replace(foundation, card={**foundation.card, "version": about}).save(path)
        try:
            load_foundation(path)
        except TrimtabError:
            path.unlink(missing_ok=True)
            raise
        return name

    def make_current(self, name: str, now: float) -> None:
        self.load(name)
        write_whole(self._pointer, json.dumps({"version": name, "since": now}) + "\n")

    def before(self, name: str) -> str:
        """The version that was current when this one was made; the shipped weights where it was removed."""
        try:
            parent = str(self.load(name).card.get("version", {}).get("parent", SHIPPED_VERSION))
        except TrimtabError:
            older = self.names[: self.names.index(name)] if name in self.names else ()
            parent = older[-1] if older else SHIPPED_VERSION
        return parent if parent in self.names else SHIPPED_VERSION

    def prune(self) -> tuple[str, ...]:
        """Remove old versions and temporary files of interrupted writes; returns the removed names."""
        current = self.current.name
        kept = {*self.names[-_KEPT:], current, self.before(current)}
        removed = tuple(name for name in self.names[1:] if name not in kept)
        for path in [*map(self._path, removed), *self.folder.glob(".v*.safetensors.*")]:
            path.unlink(missing_ok=True)
        return removed

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Lock against other processes that change versions; refused while one of them holds it."""
        busy = f"another process is changing the models in {self.folder}; try again when it has ended"
        return file_lock(self.folder / ".lock", busy)

    @property
    def _pointer(self) -> Path:
        return self.folder / "current.json"

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"


def current_foundation(
    warn: Callable[[str], None] = lambda sentence: None, versions: Versions | None = None
) -> Foundation:
    """The weights that answer: the current version's, or the shipped ones and a warning if it is damaged."""
    versions = versions or Versions()
    try:
        return versions.load(versions.current.name)
    except (TrimtabError, OSError) as error:
        shipped = shipped_foundation()
        warn(f"the weights that came with Trimtab answer, because the current model cannot: {error}")
        return shipped


def version_name(foundation: Foundation) -> str:
    return str(foundation.card.get("version", {}).get("name", SHIPPED_VERSION))
