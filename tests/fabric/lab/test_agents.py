"""A lab's host can be told to an agent by a file, as a real one."""

from dataclasses import replace

import pytest
import yaml

from trimtab.fabric import Echo, Timers, host_of
from trimtab.fabric.lab.lab import file_of
from trimtab.fabric.lab.layout import host_of_lab


@pytest.mark.parametrize(("echo", "rto_min"), [(Echo(0.01, 5), 0.05), (None, 0.0)])
def test_the_file_of_a_host_describes_that_host(echo: Echo | None, rto_min: float) -> None:
    timers = Timers(interval=0.02, multiplier=4, hold=3.5, settle=0.5, echo=echo)
    host = replace(host_of_lab("node-1", 7, timers, {"lab": 100, "other": 200}, 4000), rto_min=rto_min)
    assert host_of("it", yaml.safe_load(file_of(host))) == host
