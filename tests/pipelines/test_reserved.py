"""What a pipeline reserves, sized one way or another."""

from collections.abc import Callable

from trimtab.core import Profile
from trimtab.pipelines import Pipeline, Reserved, reserved_ways, size
from trimtab.pipelines.reserved import reserved_alike, reserved_before, reserved_each

GIB = 2.0**30


def test_own_sizes_never_reserve_more_than_one_for_all(
    pipeline: Callable[..., Pipeline], used: Callable[..., Profile]
) -> None:
    text = """\
stages:
- {name: load, command: a, resources: {cpu: 4, memory: 16Gi}}
- {name: train, command: a, after: load, resources: {cpu: 4, memory: 16Gi}}
"""
    profiles = {"load": used([0.5] * 10, [0.8 * GIB] * 10), "train": used([2.0] * 90, [3.2 * GIB] * 90)}
    sized = size(pipeline(text), profiles)
    assert reserved_before(sized) == Reserved(400.0, 1600 * GIB)
    assert reserved_alike(sized) == Reserved(200.0, 400 * GIB)
    assert reserved_each(sized) == Reserved(5.0 + 180.0, 10 * GIB + 360 * GIB)
    silent = size(pipeline(text.replace(", memory: 16Gi", "", 1)), profiles)
    assert reserved_before(silent) is None
    assert list(reserved_ways(sized)) == ["as the file asked", *reserved_ways(silent)]
