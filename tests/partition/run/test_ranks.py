"""Every device of a plan is one process."""

import numpy as np

from trimtab.partition import Devices, Plan, Stage
from trimtab.partition.devices import Device
from trimtab.partition.run.ranks import by_machine, places, rank_at, shared_weights

PLAN = Plan((Stage((0,), ((5, 1), (3, 2))), Stage((1,), ((0, 4), (7, 6)))), (1, 1), 1)


def test_ranks_follow_the_numbers_of_devices_and_parts_follow_ranks() -> None:
    ranks = places(PLAN)
    assert [place.device for place in ranks] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert (ranks[5].stage, ranks[5].replica, ranks[5].part) == (0, 0, 1)
    assert rank_at(ranks, 1, 1, 0) == 6


def test_machines_start_their_processes_one_after_the_other() -> None:
    rows = tuple(Device(str(i), "cpu", 1.0, {}, 1.0, machine=i % 2) for i in range(8))
    devices = Devices(rows, np.zeros((8, 8)), np.zeros((8, 8)))
    assert by_machine(PLAN, devices) == (0, 2, 4, 6, 1, 3, 5, 7)
    assert [place.device for place in places(PLAN, by_machine(PLAN, devices))][:3] == [0, 2, 4]


def test_weights_that_several_stages_hold_are_tied() -> None:
    assert shared_weights([("a", "b"), ("c",), ("b", "a"), ("c",)]) == (
        ((0, 2), ("a", "b")),
        ((1, 3), ("c",)),
    )
    assert shared_weights([("a",), ("b",)]) == ()
