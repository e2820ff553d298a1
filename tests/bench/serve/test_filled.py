"""A filled store has what it should, is made once, and replaces the one that other code made."""

from pathlib import Path

import pytest
from trimtab_bench.serve import world
from trimtab_bench.serve.filled import kept_store
from trimtab_bench.serve.world import World

from trimtab.core import home
from trimtab.store import JobState, WantedDecisions, open_store

SMALL = World(jobs=60, decisions=200, events=100, profiles=20)


def test_a_store_is_filled_once_and_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    outdated = home() / "bench" / "serve" / "0123456789abcdef" / "200-decisions.sqlite"
    outdated.parent.mkdir(parents=True)
    outdated.touch()
    file = kept_store(SMALL)
    made = file.stat().st_mtime_ns
    assert kept_store(SMALL).stat().st_mtime_ns == made
    assert not outdated.exists()
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    with open_store(f"sqlite:///{file}") as store:
        assert store.faults() == ()
        assert store.facts().rows["decisions"] == 200
        for whose in (0, 7):
            name = world.tenant(whose)
            newest = store.ledger.page(1, WantedDecisions(tenants=[name])).items[0]
            assert newest.id == world.decision_id(world.nth_of(whose, 1.0, 200))
            assert (newest.kind, newest.subject) == (
                world.decision_kind(180 + whose),
                world.subject(180 + whose),
            )
            assert store.ledger.outcomes(world.decision_id(10))[0].measured["time"] == 7000.0
        states = [store.jobs.get(world.job_id(number)).state for number in range(60)]
        assert states[-6:] == [JobState.WAITING] * 6
        assert JobState.WAITING not in states[:-6]
        assert store.profiles.get(world.profile_id(19)).id == world.profile_id(19)
        assert store.events.newest() == 100
