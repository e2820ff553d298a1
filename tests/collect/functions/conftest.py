"""What tests of functions need: the right to make groups, a server, surroundings."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from trimtab.collect.functions.applications import Surroundings
from trimtab.collect.functions.surroundings import local_server
from trimtab.kernel import Hierarchy, LimitedGroup, NoGroupError, Owner, find_hierarchy
from trimtab.kernel.hierarchy import passing_down


def group_folders(label: str = "") -> list[Path]:
    """Groups that this process has made and not removed."""
    hierarchy = find_hierarchy()
    place = passing_down(hierarchy) if hierarchy else None
    folders = (place or Hierarchy(2, {})).folders.values()
    return [path for folder in folders for path in folder.glob(Owner.current().name(label) + "*")]


@pytest.fixture
def group() -> Iterator[LimitedGroup]:
    try:
        made = LimitedGroup.create()
    except NoGroupError as error:
        pytest.skip(f"needs the right to make control groups: {error}")
    with made:
        yield made


@pytest.fixture
def no_group_is_left(group: LimitedGroup) -> Iterator[None]:
    """Fails a test that leaves a group behind."""
    before = set(group_folders())
    yield
    assert set(group_folders()) == before


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    try:
        with local_server(frozenset({0})) as address:
            yield address
    except NoGroupError as error:
        pytest.skip(f"needs the right to make control groups: {error}")


@pytest.fixture
def place(tmp_path: Path, server: str) -> Surroundings:
    return Surroundings(tmp_path, server)
