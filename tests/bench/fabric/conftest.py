"""A lab to break, for more than one module."""

from collections.abc import Iterator

import pytest

from trimtab.fabric import Timers
from trimtab.fabric.lab.lab import Lab


@pytest.fixture(scope="package")
def lab(can_build: None) -> Iterator[Lab]:
    """With agents, and slow enough for sessions to stay up on a machine that does much else."""
    with Lab(timers=Timers(interval=0.1, multiplier=3, hold=0.1)) as built:
        built.wait_ready(60)
        built.start_agents()
        yield built
