"""The call from Python: a mapping or a file in, estimates and reasons out."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from trimtab.core import BadInputError, NotFoundError
from trimtab.predict import Foundation, predict

TOLD: dict[str, Any] = {
    "application": "thumbnailer",
    "observations": [{"memory": "512MB", "time": "240ms", "cpu_user": "60ms", "memory_used": "80MB"}],
}
ON_CLUSTERS: dict[str, Any] = {
    "environment": "ec2",
    "observations": [{"configuration": "c4.large nodes=10", "time": 1200}],
}


def test_a_mapping_and_a_file_are_answered_alike(shipped: Foundation, tmp_path: Path) -> None:
    path = tmp_path / "thumbnailer.yaml"
    path.write_text(
        "observations:\n  - {memory: 512MB, time: 240ms, cpu_user: 60ms, memory_used: 80MB}\n",
        encoding="utf-8",
    )
    answers = [predict(told, ["1024MB", "2GB"], shipped) for told in (TOLD, path, str(path))]
    assert {answer.application for answer in answers} == {"thumbnailer"}
    assert answers[0].lines == answers[1].lines == answers[2].lines
    assert [line.configuration for line in answers[0].lines] == ["512MB", "1024MB", "2048MB"]


def test_places_may_be_a_sequence_or_stand_with_commas(shipped: Foundation) -> None:
    assert predict(TOLD, "1GB, 2GB,", shipped).lines == predict(TOLD, ("1GB", "2GB"), shipped).lines


def test_weights_come_along(shipped: Foundation) -> None:
    assert predict(TOLD).lines == predict(TOLD, foundation=shipped).lines


def test_one_place_is_found_as_people_write_it(shipped: Foundation) -> None:
    answer = predict(TOLD, "1GB", shipped)
    assert answer.at("1024MB") is answer.at("1 GiB") is answer.lines[1]
    with pytest.raises(NotFoundError, match=r'"3GB" was not asked for'):
        answer.at("3GB")
    with pytest.raises(BadInputError, match="is not an amount of memory"):
        answer.at("large")
    clusters = predict(ON_CLUSTERS, "all", shipped)
    assert clusters.at("C4.Large  nodes=10").known
    with pytest.raises(NotFoundError, match=r"did you mean c4\.large nodes=10"):
        clusters.at("c4.large node=10")


def test_the_answer_says_who_and_why(shipped: Foundation) -> None:
    answer = predict(TOLD, "all", shipped)
    assert answer.environment == "lambda"
    assert answer.chosen_by == "model"
    assert answer.rule_name in answer.reason
    assert answer.best_is == "cheapest"
    assert answer.best.cost is not None
    assert all(line.cost and line.cost.value >= answer.best.cost.value for line in answer.lines)
    assert answer.decision().contributions == answer.contributions(answer.best.configuration)


def test_sizes_are_read_from_small_to_large_and_clusters_from_the_best_on(shipped: Foundation) -> None:
    sizes = [line.configuration for line in predict(TOLD, "2GB,128MB", shipped).ordered]
    assert sizes == ["128MB", "512MB", "2048MB"]
    clusters = predict(ON_CLUSTERS, "all", shipped)
    costs = [line.cost.value for line in clusters.ordered if line.cost]
    assert costs == sorted(costs)
    assert clusters.ordered[0] is clusters.best


@pytest.mark.parametrize("told", [TOLD, ON_CLUSTERS], ids=["function", "clusters"])
def test_the_parts_of_every_answer_add_up_to_it(shipped: Foundation, told: dict[str, Any]) -> None:
    answer = predict(told, "all", shipped)
    for line in answer.lines:
        parts = answer.contributions(line.configuration)
        assert bool(parts) != line.known
        if parts:
            assert sum(part.value for part in parts) == pytest.approx(line.time.value)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    times=st.dictionaries(st.integers(64, 10240), st.floats(1e-4, 1e4), min_size=1, max_size=6),
    busy=st.none() | st.floats(0, 900),  # CPUs
    environment=st.sampled_from(["lambda", "openwhisk"]),
)
def test_whatever_was_measured_ranges_hold_answers_and_parts_add_up(
    shipped: Foundation, times: dict[int, float], busy: float | None, environment: str
) -> None:
    runs = [
        {"memory": f"{size}MB", "time": seconds} | ({} if busy is None else {"cpu_user": busy * seconds})
        for size, seconds in times.items()
    ]
    answer = predict({"environment": environment, "observations": runs}, "all,50MB", shipped)
    for line in answer.lines:
        assert 0 < line.time.low <= line.time.value <= line.time.high < float("inf")
        if not line.known:
            parts = answer.contributions(line.configuration)
            assert sum(part.value for part in parts) == pytest.approx(line.time.value, rel=1e-6)
