"""An engine by its address."""

import pytest

from trimtab.core import BadInputError, NotFoundError
from trimtab.engines import LocalEngine, engine


def test_local_is_this_machine() -> None:
    assert isinstance(engine("local://"), LocalEngine)


@pytest.mark.parametrize("url", ["", "local", "ray://head:10001", "://", "LOCAL://"])
def test_others_are_refused_by_naming_what_there_is(url: str) -> None:
    with pytest.raises(NotFoundError, match=f'no engine is called "{url}"; there are local://'):
        engine(url)


def test_nothing_comes_after_local() -> None:
    with pytest.raises(BadInputError, match='nothing comes after local://, so "somewhere" must go'):
        engine("local://somewhere")
