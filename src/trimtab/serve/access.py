"""From a bearer token to who asks. What was found is trusted until tokens change, a second at most."""

import threading
from dataclasses import dataclass, field

from trimtab.core import Clock, RealClock
from trimtab.serve.errors import UnknownCallerError
from trimtab.serve.principal import LOCAL, Principal
from trimtab.store import Store

TRUSTED = 1.0
"""Seconds after which tokens that were made or revoked elsewhere are noticed."""

_MOST = 10_000
_REFUSED = "this token opens nothing: it is wrong, expired or revoked; ask an admin for another"
_NEEDED = "a token is needed; send it as Authorization: Bearer tt_…"


@dataclass(slots=True)
class Access:
    """Knows callers. With `always`, also people at the machine itself need a token from the start."""

    store: Store
    always: bool = False
    clock: Clock = field(default_factory=RealClock)
    _known: dict[str, Principal] = field(default_factory=dict)
    _pulse: int = -1
    _looked: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def caller(self, authorization: str | None, here: bool) -> Principal:
        """Who asks, by the request's Authorization; `here` says that it comes from this machine."""
        if authorization is None:
            if here and self.open_here:
                return LOCAL
            raise UnknownCallerError(_NEEDED)
        kind, _, text = authorization.partition(" ")
        if kind.lower() != "bearer" or not text.strip():
            raise UnknownCallerError(_NEEDED)
        return self.holder(text.strip())

    def holder(self, text: str) -> Principal:
        """Who holds the token of that text."""
        self._look()
        known = self._known.get(text)
        if known is not None and known.token.valid(self.clock.now()):
            return known
        pulse = self._pulse
        found = self.store.tokens.find(text)
        if found is None:
            raise UnknownCallerError(_REFUSED)
        caller = Principal(found)
        with self._lock:
            # What was found before tokens changed must not be remembered after.
            if self._pulse == pulse:
                if len(self._known) >= _MOST:
                    self._known.clear()
                self._known[text] = caller
        return caller

    @property
    def open_here(self) -> bool:
        """Whether who is at this machine needs no token: none has been made yet."""
        if self.always:
            return False
        self._look()
        return self._pulse == 0

    def _look(self) -> None:
        """Forget what was known when tokens have changed."""
        now = self.clock.monotonic()
        if now - self._looked < TRUSTED:
            return
        with self._lock:
            pulse = self.store.tokens.pulse()
            if pulse != self._pulse:
                self._known.clear()
            self._pulse, self._looked = pulse, now
