import pytest

import trimtab.predict


@pytest.mark.parametrize("name", trimtab.predict.__all__)
def test_every_public_name_is_found_when_asked_for(name: str) -> None:
    found = getattr(trimtab.predict, name)
    assert getattr(found, "__name__", name) == name  # a constant has no name of its own


def test_any_other_name_is_not() -> None:
    with pytest.raises(AttributeError, match=r"'trimtab\.predict' has no attribute 'oracle'"):
        trimtab.predict.oracle  # noqa: B018
