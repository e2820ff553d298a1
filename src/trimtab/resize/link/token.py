"""A token lets one node join: one word with the address, the authority's fingerprint and a secret.

Only a hash of the secret is kept, in a file, so that a token can be made beside a running controller. When it
expires is told by the wall clock: the file outlives the process that wrote it.
"""

import contextlib
import hashlib
import hmac
import json
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from trimtab.core import BadInputError, StorageError, split_address
from trimtab.kernel import file_lock
from trimtab.resize.link.certificates import make_private_folder, write_secret

LIFETIME = 3600.0  # s
_LOCK_WAIT = 10.0  # s
_WORD = re.compile(r"tt1\.(?P<address>.{1,300})\.(?P<fingerprint>[0-9a-f]{64})\.(?P<secret>[0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class Token:
    """What a node needs to join."""

    address: str  # of the join server, "host:port"
    fingerprint: str
    secret: str

    def __str__(self) -> str:
        return f"tt1.{self.address}.{self.fingerprint}.{self.secret}"

    def __repr__(self) -> str:
        return f"Token({self.address})"  # a secret has no place in a log

    @classmethod
    def parse(cls, word: str) -> "Token":
        """The token that this word is."""
        found = _WORD.fullmatch(word.strip())
        if found is None:
            raise BadInputError(
                "that is not a token; copy the whole word, from tt1. on, that trimtab token prints"
            )
        split_address(found["address"])
        return cls(found["address"], found["fingerprint"], found["secret"])


class Tokens:
    """Secrets that have been given out and not used yet."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def new(self, now: float, lifetime: float = LIFETIME) -> str:
        """A new secret, good for one node until it expires."""
        secret = secrets.token_hex(16)
        with self._locked():
            self._write([*self._open(now), (_hash(secret), now + lifetime)])
        return secret

    def use(self, secret: str, now: float) -> None:
        """Make sure that it is good, and that it is not afterwards."""
        wanted = _hash(secret)
        with self._locked():
            kept = self._open(now)
            matches = [hmac.compare_digest(wanted, known) for known, _ in kept]
            if not any(matches):
                raise BadInputError(
                    "this token is wrong, has been used, or has expired; make a new one with trimtab token"
                )
            self._write([each for each, match in zip(kept, matches, strict=True) if not match])

    def _open(self, now: float) -> list[tuple[str, float]]:
        """Those that have not expired."""
        try:
            told = json.loads(self._file.read_text(encoding="utf-8"))
            return [(str(known), float(until)) for known, until in told if float(until) > now]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError) as error:
            raise StorageError(
                f"{self._file} cannot be read: {error}; remove it and make new tokens"
            ) from None

    def _write(self, kept: list[tuple[str, float]]) -> None:
        write_secret(self._file, json.dumps(kept).encode())

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        """Nobody else reads and writes them meanwhile."""
        make_private_folder(self._file.parent)
        busy = f"{self._file} is being changed by another command that does not end; try again"
        return file_lock(self._file.with_suffix(".lock"), busy, _LOCK_WAIT)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
