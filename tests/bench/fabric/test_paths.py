"""A lab is whole when all of it is used, and not before."""

import time

from trimtab_bench.fabric.variants import all_paths_in_use

from trimtab.fabric.lab.lab import Lab


def becomes(lab: Lab, wanted: bool, seconds: float = 40.0) -> bool:
    give_up = time.monotonic() + seconds
    while all_paths_in_use(lab) != wanted:
        if time.monotonic() > give_up:
            return False
        time.sleep(0.1)
    return True


def test_a_lab_with_a_dead_path_is_not_whole_until_it_is_used_again(lab: Lab) -> None:
    assert becomes(lab, True)
    with lab.fault("blackhole", 1, "p2"):
        assert becomes(lab, False)
    assert becomes(lab, True)
