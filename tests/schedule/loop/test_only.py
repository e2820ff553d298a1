"""One scheduler at a time; where another may take over, it does so with a scheduler made anew."""

import re
import threading
from pathlib import Path

import pytest

from trimtab.core import StorageError
from trimtab.schedule import only_scheduler
from trimtab.schedule.loop.scheduler import SchedulerLeadership
from trimtab.store import Store, open_store


class Terms:
    """A leader who leads for some terms with somebody else's between them, then asks for the end."""

    passes = True

    def __init__(self, end: threading.Event, terms: int) -> None:
        self.lost = threading.Event()
        self._end = end
        self._left = terms
        self._asked = 0

    def wait(self, timeout: float) -> bool:
        self._asked += 1
        if self._asked % 3 == 1:
            raise StorageError("the server is away for a moment")
        if self._asked % 3 == 2:
            return False
        if not self._left:
            self._end.set()
            return False
        self._left -= 1
        self.lost.clear()
        return True

    def require(self, connection: object) -> None:
        pass


class Rounds:
    """A scheduler that notes where its work went, and runs until its leader is deposed."""

    def __init__(self, store: Store, leader: Terms, ran: list[int]) -> None:
        self._store = store
        self._leader = leader
        self._ran = ran

    def run(self, end: threading.Event) -> None:
        while not end.is_set():
            self._store.notes.put("round", {"n": len(self._ran)}, 1.0)
            self._ran.append(len(self._ran))
            self._leader.lost.set()
            end.wait(0.01)


def test_a_scheduler_is_made_anew_for_each_term_until_told_to_end(tmp_path: Path) -> None:
    end, ran = threading.Event(), list[int]()
    leader = Terms(end, 3)
    with open_store(f"sqlite:///{tmp_path}/s.sqlite") as store:
        SchedulerLeadership(store, leader).hold(lambda held: Rounds(held, leader, ran), end)  # type: ignore[arg-type, return-value]
        note = store.notes.get("round")
    assert ran == [0, 1, 2]
    assert note is not None
    assert note.body == {"n": 2}


def test_a_second_scheduler_on_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    with open_store(f"sqlite:///{tmp_path}/s.sqlite") as store:
        with (
            only_scheduler(store),
            pytest.raises(StorageError, match=re.escape(str(tmp_path))),
            only_scheduler(store),
        ):
            pass
        with only_scheduler(store):
            pass
