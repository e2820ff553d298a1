"""Rows of devices that can each run a stage: equal and unequal replicas, and ranks inside one machine."""

import numpy as np

from trimtab.partition import Devices, devices_of
from trimtab.partition.solvers.groupings import groupings


def test_unequal_replicas_share_by_their_speed(four: Devices) -> None:
    speed = np.array([4.0, 4.0, 1.0, 1.0])
    every = [each for each in groupings(four, speed, 4, 1) if each.replicas == 4]
    shares = {each.shares(20) for each in every}
    assert (8, 8, 2, 2) in shares
    assert all(sum(each) == 20 for each in shares if each)
    assert all(each.shares(3) is None for each in every)


def test_groups_of_devices_that_share_products_are_in_one_machine() -> None:
    devices = devices_of("a100:8/4", "10Gbit")
    for each in groupings(devices, np.ones(8), 8, 8):
        for row in each.rows:
            assert len({device for rank in row for device in rank}) == each.replicas * each.tensor
            for rank in row:
                assert len({devices[device].machine for device in rank}) == 1
    assert {each.tensor for each in groupings(devices, np.ones(8), 8, 8)} == {1, 2, 4}
