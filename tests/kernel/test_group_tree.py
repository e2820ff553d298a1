"""Folders watched for what is made and removed, and the tree of control groups kept by such watches."""

import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from trimtab.kernel import FolderWatch, GroupTree, LimitedGroup, NoGroupError


def test_what_is_made_and_removed_is_told_once(tmp_path: Path) -> None:
    with FolderWatch() as watch:
        watch.add(str(tmp_path))
        assert watch.changed() == set()
        (tmp_path / "made").mkdir()
        (tmp_path / "short").mkdir()
        (tmp_path / "short").rmdir()
        assert watch.changed() == {str(tmp_path / "made"), str(tmp_path / "short")}
        assert watch.changed() == set()
        (tmp_path / "made").rename(tmp_path / "moved")
        assert watch.changed() == {str(tmp_path / "made"), str(tmp_path / "moved")}


def test_control_groups_are_watched_and_their_watches_go_with_them() -> None:
    try:
        group = LimitedGroup.create()
    except NoGroupError as error:
        pytest.skip(f"needs the right to make control groups: {error}")
    with group, FolderWatch() as watch:
        folder = next(iter(group.folders.values()))
        watch.add(str(folder))
        for number in range(5):
            inner = folder / "inner"
            inner.mkdir()
            watch.add(str(inner))
            inner.rmdir()
            watch.remove(str(inner))
            assert watch.changed() == {str(inner)}, number
        assert _watches() == 1


def _watches() -> int:
    """How many folders this process watches, by what the kernel says of its files."""
    lines = []
    for name in os.listdir("/proc/self/fdinfo"):
        try:
            lines += Path("/proc/self/fdinfo", name).read_text().splitlines()
        except OSError:
            continue
    return sum(line.startswith("inotify wd:") for line in lines)


def test_a_folder_that_takes_anothers_place_is_watched_instead(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with FolderWatch() as watch:
        watch.add(str(folder))
        folder.rename(tmp_path / "old")
        folder.mkdir()
        watch.add(str(folder))
        (tmp_path / "old" / "unseen").mkdir()
        (folder / "seen").mkdir()
        assert watch.changed() == {str(folder / "seen")}


def test_what_is_not_there_is_left_out_and_what_cannot_be_watched_is_to_be_looked_at(tmp_path: Path) -> None:
    with FolderWatch() as watch:
        watch.add(str(tmp_path / "nothing"))
        assert watch.changed() == set()
        watch.close()
        watch.add(str(tmp_path))
        assert watch.changed() is None


def test_events_that_were_lost_mean_look_again(tmp_path: Path) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 50_000:
        pytest.skip("it would take long to lose an event here")
    with FolderWatch() as watch:
        watch.add(str(tmp_path))
        for _ in range(most // 2 + 1):
            os.mkdir(tmp_path / "x")
            os.rmdir(tmp_path / "x")
        assert watch.changed() is None
        assert watch.changed() == set()


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
