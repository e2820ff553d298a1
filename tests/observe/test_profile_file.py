"""A profile as a file: written whole, and never mistaken for something else."""

import json
import os
import re
from pathlib import Path

import pytest

from trimtab.core import (
    BadInputError,
    Host,
    Layer,
    Model,
    Operators,
    Profile,
    Series,
    Steps,
    StorageError,
    Workload,
)
from trimtab.kernel import check_writable
from trimtab.observe import load_profile, save_profile


@pytest.fixture
def profile() -> Profile:
    return Profile(
        id="20260101-000000-abc",
        created=1.0,
        workload=Workload("train", command=("python", "train.py")),
        host=Host("cpu", 2.0, 8e9, ("H200",)),
        window=5.0,
        every=1.0,
        method="cgroup-v2",
        ended="interrupted",
        status=130,
        series=Series((1.0,), (0.5,), (1e6,), (0.0,), (0.0,), (0.0,), (0.0,)),
        model=Model(
            parameters=3,
            parameter_bytes=12.0,
            buffer_bytes=0.0,
            modules=1,
            layers=(Layer("", "Linear", 3),),
            optimizer="SGD",
            optimizer_state_bytes=0.0,
            precision="bf16",
            forward_flop_per_sample=6.0,
            step_flop_per_sample=18.0,
            saved_fixed_bytes=0.0,
            saved_sample_bytes=4.0,
            input_shape=(2,),
            operators=(Operators("forward", "matmul", 1.0, 12.0, 8.0, 4.0),),
        ),
        steps=Steps((0.1, 0.2), 4, 1, "cpu", epochs=3.0),
        notes=("a note",),
    )


def test_a_profile_comes_back_as_it_was_saved(profile: Profile, tmp_path: Path) -> None:
    path = tmp_path / "new" / "p.json"
    save_profile(profile, path)
    assert load_profile(path) == profile
    assert os.listdir(path.parent) == ["p.json"]


def test_a_missing_file_is_named_with_the_way_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"p\.json.*trimtab profile"):
        load_profile(tmp_path / "p.json")


def test_a_file_that_was_cut_off_is_called_damaged(profile: Profile, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    save_profile(profile, path)
    path.write_text(path.read_text()[:200])
    with pytest.raises(BadInputError, match=re.escape(str(path))):
        load_profile(path)


@pytest.mark.parametrize("text", ["{}", '{"version": 1}', "[1]", '{"name": "package", "version": "1.0"}'])
def test_other_json_is_not_a_profile(text: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(BadInputError, match=re.escape(str(path))):
        load_profile(path)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"import torch\n"])
def test_what_is_not_json_is_not_a_profile(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(content)
    with pytest.raises(BadInputError):
        load_profile(path)


def test_a_profile_of_the_future_asks_for_an_update(profile: Profile, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    save_profile(profile, path)
    plain = json.loads(path.read_text())
    path.write_text(json.dumps({**plain, "version": 99, "something": "new"}))
    with pytest.raises(BadInputError, match="version 99"):
        load_profile(path)


def test_a_wrong_value_is_named_by_its_place(profile: Profile, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    save_profile(profile, path)
    plain = json.loads(path.read_text())
    plain["model"]["layers"][0]["parameters"] = -1
    path.write_text(json.dumps(plain))
    with pytest.raises(BadInputError, match=r"model\.layers\[0\]\.parameters"):
        load_profile(path)


def test_a_place_that_cannot_be_written_is_told_before_and_leaves_nothing(
    profile: Profile, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "p.json", Path("/proc/nowhere/p.json")):
        with pytest.raises(StorageError, match=re.escape(str(path))):
            check_writable(path)
        with pytest.raises(StorageError, match=re.escape(str(path))):
            save_profile(profile, path)
    with pytest.raises(StorageError, match=re.escape(str(tmp_path))):
        check_writable(tmp_path)
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_leaves_the_old_profile_as_it_was(profile: Profile, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    save_profile(profile, path)
    before = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(StorageError, match="no space left"):
            save_profile(profile, path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["p.json"]
