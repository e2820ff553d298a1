"""What a job file says whatever the target."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from trimtab.core import BadInputError, Configuration, Workload
from trimtab.engines.jobfiles.job import JobFile

Configure = Callable[..., Configuration]


@given(name=st.text())
def test_every_name_becomes_a_dns_label_and_one_line(configuration: Configure, name: str) -> None:
    job = JobFile(Workload(name, command=("true",)), configuration("cpu"))
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", job.name)
    assert len(job.name) <= 50
    assert job.title.isprintable()


@pytest.mark.parametrize(
    ("expected", "longest", "limit"),
    [(None, None, None), (60.0, None, 1800), (7200.0, None, 14400), (7200.0, 90.0, 120)],
)
def test_the_limit_is_what_was_asked_for_or_twice_the_estimate(
    configuration: Configure, expected: float | None, longest: float | None, limit: int | None
) -> None:
    job = JobFile(Workload("a", command=("true",)), configuration("cpu"), expected, longest)
    assert job.time_limit == limit


def test_the_header_names_configuration_time_cost_and_launch(configuration: Configure) -> None:
    job = JobFile(Workload("a", command=("true",)), configuration("a100", nodes=2), 3600.0)
    header = "\n".join(job.header("sky launch job.yaml"))
    for part in ("aws/us-east-1/p4d.24xlarge x2 b64", "Expected: 1h, $72.00", "Launch: sky launch job.yaml"):
        assert part in header


@pytest.mark.parametrize("command", [(), ("",), ("--epochs", "3")])
def test_a_workload_without_a_program_is_refused(configuration: Configure, command: tuple[str, ...]) -> None:
    with pytest.raises(BadInputError):
        JobFile(Workload("a", command=command), configuration("cpu"))


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_time_is_refused(configuration: Configure, seconds: float) -> None:
    with pytest.raises(BadInputError):
        JobFile(Workload("a", command=("true",)), configuration("cpu"), seconds)


def test_an_image_name_with_spaces_is_refused(configuration: Configure) -> None:
    with pytest.raises(BadInputError, match="container image"):
        JobFile(Workload("a", command=("true",)), configuration("cpu"), image="my image")
