import pytest

import trimtab.predict


@pytest.mark.parametrize("name", trimtab.predict.__all__)
def test_every_public_name_is_found_when_asked_for(name: str) -> None:
    assert getattr(trimtab.predict, name).__name__ == name


def test_any_other_name_is_not() -> None:
    with pytest.raises(AttributeError, match=r"'trimtab\.predict' has no attribute 'oracle'"):
        trimtab.predict.oracle  # noqa: B018
