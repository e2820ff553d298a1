"""The measured applications, read once."""

from pathlib import Path

import pytest

from trimtab.schedule.simulation.goodput_profiles import MeasuredApplication, read_profiles


@pytest.fixture(scope="session")
def profiles(shared_data: Path) -> dict[str, MeasuredApplication]:
    return read_profiles(shared_data / "goodput")
