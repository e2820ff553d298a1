"""More devices of a kind come in machines like those there are."""

import numpy as np

from trimtab.partition import devices_of
from trimtab.partition.machines import with_more


def test_more_devices_come_in_machines_of_the_same_size() -> None:
    devices = devices_of("a100:2,t4:4/2", network="25Gbit")
    more = with_more(devices, "A100", 3)
    assert [d.machine for d in more.devices] == [0, 0, 1, 1, 2, 2, 3, 3, 4]
    assert (more.bandwidth[:6, :6] == devices.bandwidth).all()
    assert more.bandwidth[6, 7] == devices.bandwidth[0, 1]
    assert more.bandwidth[0, 6] == more.bandwidth[7, 8] == more.bandwidth[6, 2] == 25e9 / 8
    assert np.array_equal(more.bandwidth, more.bandwidth.T)


def test_a_second_machine_is_joined_by_the_usual_network() -> None:
    more = with_more(devices_of("t4:2"), "T4", 1)
    assert more.bandwidth[0, 2] == 10e9 / 8
