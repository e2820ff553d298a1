"""How weights are split over devices that share their products."""

import pytest

from trimtab.partition.run.stage_module import split_dimension


@pytest.mark.parametrize(
    ("shape", "count", "expected"),
    [
        ((32, 8), 2, 0),
        ((8, 32), 2, 1),
        ((8, 8), 2, 1),
        ((31, 8), 2, 1),
        ((8, 31), 4, 0),
        ((31, 7), 2, None),
        ((8,), 2, None),
        ((4, 4, 3, 3), 2, None),
    ],
)
def test_matrices_are_split_by_outputs_or_inputs_where_they_can_be(
    shape: tuple[int, ...], count: int, expected: int | None
) -> None:
    assert split_dimension(shape, count) == expected
