"""A host's probes over all its uplinks: sent at every tick, read at the next, judged by the rule.

What came back is read at ticks only, and not when it comes: nobody would do anything about it before, and a
thread that sleeps for a whole interval costs little.
"""

import os
from collections.abc import Sequence

from trimtab.fabric.failover.echo_socket import EchoSocket
from trimtab.fabric.failover.echoes import Echoes, Looped
from trimtab.fabric.topology import Echo, Uplink


class EchoWatch:
    """To be made inside the host's namespace; `now` is seconds of a clock that never goes backwards."""

    def __init__(self, uplinks: Sequence[Uplink], timing: Echo, now: float) -> None:
        session = os.urandom(8)  # what an earlier agent sent does not count
        self._echoes = Echoes((each.device for each in uplinks), timing.interval, timing.multiplier, now)
        self._sockets = dict[str, EchoSocket]()
        try:
            for each in uplinks:
                self._sockets[each.device] = EchoSocket(each, session)
        except BaseException:
            self.close()
            raise

    @property
    def next_tick(self) -> float:
        """When `tick` is due."""
        return self._echoes.next_tick

    @property
    def late(self) -> int:
        """Ticks that came late so far: this machine had something else to do."""
        return self._echoes.late

    def tick(self, now: float) -> list[tuple[str, Looped]]:
        """Read, judge, send; which uplinks are not any more what they were."""
        echoes = self._echoes
        for device, each in self._sockets.items():
            for number in each.back():
                echoes.came(device, number)
        changed = echoes.tick(now)
        for each in self._sockets.values():
            each.send(echoes.number)
        return changed

    def comes_back(self, device: str) -> bool | None:
        """Whether probes come back there at the moment; None where they never did since it is up."""
        return self._echoes.comes_back(device)

    def plug(self, device: str) -> None:
        """The device is there, or there again."""
        self._sockets[device].plug()

    def forget(self, device: str) -> None:
        """It is down for another reason than probes that do not come back."""
        self._echoes.forget(device)

    def close(self) -> None:
        """Let go."""
        for each in self._sockets.values():
            each.close()
