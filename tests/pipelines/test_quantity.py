"""Kubernetes quantities, read, rounded and written."""

import pytest
from hypothesis import given, strategies as st

from trimtab.core import BadInputError
from trimtab.pipelines import format_cpu, format_memory
from trimtab.pipelines.quantity import parse_quantity, round_up_cpu, round_up_memory


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("500m", 0.5),
        (2, 2.0),
        (0.1, 0.1),
        ("512Mi", 512 * 2**20),
        ("1.5Gi", 1.5 * 2**30),
        ("4G", 4e9),
        ("129e6", 129e6),
        ("128974848000m", 128974848.0),
        ("{{$.inputs.parameters['memory']}}", None),
        (None, None),
    ],
)
def test_a_quantity_is_read(text: object, amount: float | None) -> None:
    assert parse_quantity("here", text) == amount


@pytest.mark.parametrize("text", ["much", "4GB", "-1", True, [1], "1e999", "5 Gi"])
def test_what_is_no_quantity_is_refused_with_its_place(text: object) -> None:
    with pytest.raises(BadInputError, match=r"^train\.memory.*512Mi"):
        parse_quantity("train.memory", text)


@given(st.floats(0.001, 500))
def test_a_rounded_cpu_request_is_enough_and_survives_being_written(cores: float) -> None:
    rounded = round_up_cpu(cores)
    assert cores <= rounded + 1e-9
    assert rounded <= max(0.05, cores + 0.5)
    assert parse_quantity("", format_cpu(rounded)) == pytest.approx(rounded)


@given(st.floats(1, 2**45))
def test_a_rounded_memory_request_is_at_most_an_eighth_more_and_survives_being_written(count: float) -> None:
    rounded = round_up_memory(count)
    assert count <= rounded <= max(2**26, count * 1.125)
    assert parse_quantity("", format_memory(rounded)) == rounded
