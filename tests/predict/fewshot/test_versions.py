"""Versions of the weights: what is current, what came before, and that damage never stops an answer."""

import json
import math
import re
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from trimtab.core import BadInputError, NotFoundError, StorageError
from trimtab.predict import SHIPPED_VERSION, Foundation, Versions, current_foundation, version_name
from trimtab.predict.fewshot.versions import Current


@pytest.fixture
def versions(tmp_path: Path) -> Versions:
    return Versions(tmp_path / "models")


@pytest.fixture(scope="module")
def small(shipped: Foundation) -> Foundation:
    return Foundation({"scout": shipped.predictors["scout"]}, {"seed": 0})


def added(versions: Versions, foundation: Foundation, parent: str) -> str:
    card = {**foundation.card, "version": {"parent": parent}}
    name = versions.add(Foundation(foundation.predictors, card))
    versions.make_current(name, 5.0)
    return name


def answering(versions: Versions) -> tuple[str, list[str]]:
    sentences: list[str] = []
    return version_name(current_foundation(sentences.append, versions)), sentences


def test_without_any_version_the_shipped_weights_answer(versions: Versions) -> None:
    assert versions.names == (SHIPPED_VERSION,)
    assert versions.current == Current(SHIPPED_VERSION, -math.inf)
    assert answering(versions) == (SHIPPED_VERSION, [])
    assert not versions.folder.exists()


def test_a_version_answers_once_it_is_current_and_not_before(versions: Versions, small: Foundation) -> None:
    name = versions.add(small)
    assert (name, answering(versions)) == ("v1", (SHIPPED_VERSION, []))
    versions.make_current(name, 7.0)
    assert answering(versions) == ("v1", [])
    assert (versions.current, versions.since) == (Current("v1", 7.0), 7.0)


def test_what_came_before_is_what_it_was_made_from(versions: Versions, small: Foundation) -> None:
    for parent in (SHIPPED_VERSION, "v1", "v1"):
        added(versions, small, parent)
    assert versions.names == (SHIPPED_VERSION, "v1", "v2", "v3")
    assert [versions.before(name) for name in ("v3", "v1", SHIPPED_VERSION)] == [
        "v1", SHIPPED_VERSION, SHIPPED_VERSION,
    ]  # fmt: skip


def test_old_versions_go_but_not_the_current_one_nor_where_it_came_from(
    versions: Versions, small: Foundation
) -> None:
    added(versions, small, SHIPPED_VERSION)
    added(versions, small, "v1")
    for _ in range(7):
        versions.add(small)
    (versions.folder / ".v4.safetensors.x1").write_bytes(b"what a killed write left")
    (versions.folder / "notes.txt").write_text("mine", encoding="utf-8")
    assert versions.prune() == ("v3", "v4")
    assert versions.names == (SHIPPED_VERSION, "v1", "v2", "v5", "v6", "v7", "v8", "v9")
    assert answering(versions) == ("v2", [])
    assert not (versions.folder / ".v4.safetensors.x1").exists()
    assert (versions.folder / "notes.txt").exists()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _other_schema(path: Path) -> None:
    about = {"schema": "000000000000", "words": "{}", "card": "{}", "checksum": ""}
    save_file(load_file(path), path, about)


@pytest.mark.parametrize(
    "damage", [_cut, _other_schema, Path.unlink, lambda path: path.write_bytes(b"no weights")]
)
def test_a_damaged_current_version_leaves_the_answer_to_the_shipped_weights(
    versions: Versions, small: Foundation, damage: object
) -> None:
    name = added(versions, small, SHIPPED_VERSION)
    damage(versions.folder / f"{name}.safetensors")  # type: ignore[operator]
    version, (sentence,) = answering(versions)
    assert version == SHIPPED_VERSION
    assert "the weights that came with Trimtab answer" in sentence
    assert "\n" not in sentence
    assert versions.before(name) == SHIPPED_VERSION


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": "v1"}', '{"version": "v9", "since": 1}'])
def test_so_does_a_damaged_word_on_which_is_current(versions: Versions, content: str) -> None:
    versions.folder.mkdir()
    (versions.folder / "current.json").write_text(content, encoding="utf-8")
    version, sentences = answering(versions)
    assert (version, len(sentences)) == (SHIPPED_VERSION, 1)
    versions.make_current(SHIPPED_VERSION, 1.0)
    assert answering(versions) == (SHIPPED_VERSION, [])


def test_what_cannot_be_read_does_not_become_current(versions: Versions, small: Foundation) -> None:
    added(versions, small, SHIPPED_VERSION)
    _cut(versions.folder / f"{versions.add(small)}.safetensors")
    with pytest.raises(BadInputError, match="damaged"):
        versions.make_current("v2", 9.0)
    with pytest.raises(NotFoundError, match='"v7"'):
        versions.make_current("v7", 9.0)
    assert json.loads((versions.folder / "current.json").read_text())["version"] == "v1"


def test_two_cannot_change_versions_at_once(versions: Versions) -> None:
    with (
        versions.alone(),
        pytest.raises(StorageError, match=re.escape(str(versions.folder))),
        versions.alone(),
    ):
        pass
    with versions.alone():
        pass
