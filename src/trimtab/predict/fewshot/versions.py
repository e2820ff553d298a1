"""The models of this machine: the weights that came along, and versions that learned from outcomes.

A version is a file of weights that says in its card what it comes from. One more small file says which is
current. Both are written whole or not at all, the weights first: whatever is interrupted, what was current
stays so and can be read.
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

_KEPT = 5  # newest versions that are not removed; the current one and where it came from are not either
_NAME = re.compile(r"v([1-9]\d{0,8})")


@dataclass(frozen=True, slots=True)
class Current:
    """Which version answers, and since when (seconds since the epoch)."""

    name: str = SHIPPED_VERSION
    since: float = -math.inf


@dataclass(frozen=True, slots=True)
class Versions:
    """The folder of versions; it is made when something is first written into it."""

    folder: Path = field(default_factory=lambda: home() / "models")

    @property
    def current(self) -> Current:
        """The current version by the pointer file; an error when that cannot be read."""
        try:
            told = json.loads(self._pointer.read_text(encoding="utf-8"))
            return Current(str(told["version"]), float(told["since"]))
        except FileNotFoundError:
            return Current()
        except (OSError, ValueError, LookupError, TypeError):
            raise BadInputError(
                f"{self._pointer} is damaged and does not say which version is current; "
                f"say it anew with trimtab models rollback {SHIPPED_VERSION}"
            ) from None

    @property
    def since(self) -> float:
        """Since when the version that answers does; always, where it is not known."""
        try:
            return self.current.since
        except TrimtabError:
            return -math.inf

    @property
    def names(self) -> tuple[str, ...]:
        """Every version there is, oldest first; the shipped weights are always the first."""
        found = (_NAME.fullmatch(path.stem) for path in self.folder.glob("v*.safetensors"))
        numbers = sorted(int(match[1]) for match in found if match)
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
        """From now on this version answers, if it can be read."""
        self.load(name)
        write_whole(self._pointer, json.dumps({"version": name, "since": now}) + "\n")

    def before(self, name: str) -> str:
        """The version that was current when this one was made; the shipped weights where it is gone."""
        try:
            parent = parent_of(self.load(name))
        except TrimtabError:
            older = self.names[: self.names.index(name)] if name in self.names else ()
            parent = older[-1] if older else SHIPPED_VERSION
        return parent if parent in self.names else SHIPPED_VERSION

    def prune(self) -> tuple[str, ...]:
        """Remove old versions and what interrupted writes left; returns the names of those removed."""
        current = self.current.name
        kept = {*self.names[-_KEPT:], current, self.before(current)}
        removed = tuple(name for name in self.names[1:] if name not in kept)
        for path in [*map(self._path, removed), *self.folder.glob(".v*.safetensors.*")]:
            path.unlink(missing_ok=True)
        return removed

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Nobody else changes versions meanwhile; who dies lets go. Refused while another is at it."""
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
    """Name of the version, as its card says."""
    return str(foundation.card.get("version", {}).get("name", SHIPPED_VERSION))


def parent_of(foundation: Foundation) -> str:
    """The version that these weights were made from."""
    return str(foundation.card.get("version", {}).get("parent", SHIPPED_VERSION))
