"""Which groups are there, told by folders that come and go."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from trimtab.kernel import FolderWatch, GroupTree


def test_groups_come_and_go_with_all_below_them(tmp_path: Path) -> None:
    (tmp_path / "shop" / "pay" / "inner").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    with GroupTree(tmp_path, ["/shop", "/shop/pay", "/late"]) as tree:
        assert tree.refresh()
        assert set(tree.paths) == {"/shop", "/shop/pay", "/shop/pay/inner"}
        assert not tree.refresh()
        (tmp_path / "shop" / "cart" / "deep").mkdir(parents=True)
        (tmp_path / "late" / "x").mkdir(parents=True)
        (tmp_path / "other" / "y").mkdir()
        assert tree.refresh()
        assert set(tree.paths) >= {"/shop/cart", "/shop/cart/deep", "/late", "/late/x"}
        for path in ("shop/cart/deep", "shop/cart", "late/x", "late"):
            (tmp_path / path).rmdir()
        assert tree.refresh()
        assert set(tree.paths) == {"/shop", "/shop/pay", "/shop/pay/inner"}


def test_a_group_made_again_under_its_name_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    with GroupTree(tmp_path, [""]) as tree:
        tree.refresh()
        (tmp_path / "a" / "b").rmdir()
        (tmp_path / "a" / "b").mkdir()
        tree.refresh()
        (tmp_path / "a" / "b" / "c").mkdir()
        assert tree.refresh()
        assert set(tree.paths) == {"/a", "/a/b", "/a/b/c"}


PATHS = st.sampled_from(["a", "b", "a/a", "a/b", "b/a", "a/a/a", "a/a/b"])


@given(st.lists(st.tuples(PATHS, st.booleans(), st.booleans()), max_size=12), st.booleans())
def test_whatever_comes_and_goes_the_tree_shows_what_is_there(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool, bool]], blind: bool
) -> None:
    """Each step makes or removes a folder, and the tree is asked after some; with inotify or without."""
    root = tmp_path_factory.mktemp("root")
    with pytest.MonkeyPatch.context() as patch, GroupTree(root, [""]) as tree:
        if blind:
            patch.setattr(FolderWatch, "changed", lambda self: None)
        for path, make, ask in steps:
            if make:
                (root / path).mkdir(parents=True, exist_ok=True)
            elif (root / path).is_dir() and not any((root / path).iterdir()):
                (root / path).rmdir()
            if ask:
                tree.refresh()
        tree.refresh()
        assert set(tree.paths) == {f"/{folder.relative_to(root)}" for folder in root.rglob("*")}
