"""What the lab's tests need of the machine."""

import os

import pytest

from trimtab.core import MissingDependencyError
from trimtab.fabric.frr import find_programs


@pytest.fixture(scope="session")
def can_build() -> None:
    """Skips where no lab can be built."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a lab is made of network namespaces")
    try:
        find_programs()
    except MissingDependencyError as error:
        pytest.skip(f"needs FRR: {error}")
