"""A lab is whole when all of it is used, and not before."""

import time

import pytest

from trimtab.bench.fabric.paths import whole
from trimtab.fabric import Timers
from trimtab.fabric.lab import Lab


def eventually_whole(lab: Lab, seconds: float = 40.0) -> bool:
    give_up = time.monotonic() + seconds
    while not whole(lab):
        if time.monotonic() > give_up:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.usefixtures("can_build")
def test_whatever_is_missing_is_seen() -> None:
    with Lab(timers=Timers(interval=0.1, multiplier=3)) as lab:
        assert not whole(lab), "daemons have just begun"
        assert eventually_whole(lab)
        with lab.fault("blackhole", 1, "p2"):
            give_up = time.monotonic() + 20
            while whole(lab):
                assert time.monotonic() < give_up, "a dead path must be noticed"
                time.sleep(0.1)
        assert eventually_whole(lab)
