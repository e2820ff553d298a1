from pathlib import Path

import pytest

from trimtab.core import home


def test_the_environment_names_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "kept"))
    assert home() == tmp_path / "kept"
    assert not home().exists()


@pytest.mark.parametrize("unset", [None, ""])
def test_without_it_home_is_a_hidden_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unset: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TRIMTAB_HOME", raising=False)
    if unset is not None:
        monkeypatch.setenv("TRIMTAB_HOME", unset)
    assert home() == tmp_path / ".trimtab"
