"""An engine by its address."""

import pytest

from trimtab.core import BadInputError, NotFoundError
from trimtab.engines import LocalEngine, engine


def test_local_is_this_machine() -> None:
    assert isinstance(engine("local://"), LocalEngine)


@pytest.mark.parametrize("url", ["", "local", "cloud://head:10001", "://", "LOCAL://"])
def test_others_are_refused_by_naming_what_there_is(url: str) -> None:
    with pytest.raises(NotFoundError, match=f'"{url}".* local://'):
        engine(url)


def test_what_comes_after_the_name_is_the_engines_own() -> None:
    assert [node.name for node in engine("local://?nodes=2").nodes()] == ["local-1", "local-2"]
    with pytest.raises(BadInputError, match="local://somewhere"):
        engine("local://somewhere")
