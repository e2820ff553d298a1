import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from trimtab.core import BadInputError, Decision, Estimate, NotFoundError, from_plain, to_plain
from trimtab.predict import Foundation, Prediction, explained, predict
from trimtab.predict.fewshot.blend import Blend, FittedBlend
from trimtab.predict.fewshot.case import Case
from trimtab.predict.fewshot.curves import Curves
from trimtab.predict.fewshot.datasets import BUNDLED_FUNCTIONS, read_functions
from trimtab.predict.fewshot.fine_tuning import Adapted
from trimtab.predict.fewshot.prediction import (
    LAMBDA_PRICES_OF,
    Guarded,
    PredictedConfiguration,
    Price,
    guarded,
    likeness,
    prediction_decision,
    prediction_lines,
    price_note,
    signed,
)
from trimtab.predict.fewshot.request import PredictionRequest


@given(seconds=st.floats(0, 1e9), per_second=st.floats(0, 1e3), per_run=st.floats(0, 1e3))
def test_the_parts_of_a_cost_add_up_to_it(seconds: float, per_second: float, per_run: float) -> None:
    price = Price(per_second, per_run)
    cost = price.cost(Estimate(seconds, seconds / 2, seconds * 2, 0.9, "s"))
    assert sum(part.value for part in price.parts(seconds)) == pytest.approx(cost.value)
    assert per_run <= cost.low <= cost.value <= cost.high
    assert (cost.unit, cost.coverage) == ("$", 0.9)


def test_a_fee_that_is_not_charged_is_no_part() -> None:
    assert [part.name for part in Price(1.0).parts(2.0)] == ["time"]
    assert [part.name for part in Price(1.0, 0.5).parts(2.0)] == ["time", "requests"]


def test_prices_say_of_when_they_are() -> None:
    assert LAMBDA_PRICES_OF in price_note("lambda")
    assert "when the data learned from was measured" in price_note("ec2")


Ask = Callable[..., PredictionRequest]

CLEARLY_BETTER = {"trimtab": {1: 0.1, 2: 0.1, 3: 0.1}, "CPU share": {1: 0.5, 2: 0.5, 3: 0.5}}


def _guarded(request: PredictionRequest, fitted: FittedBlend | None = None) -> Guarded:
    result = guarded(fitted or request.fitted, request.case, request.known)
    rows = len(request.case)
    for array in (result.model, result.rule, result.low, result.high):
        assert array.shape == (rows,)
        assert np.isfinite(array).all()
        assert (array > 0).all()
    assert (result.low <= result.seconds).all()
    assert (result.seconds <= result.high).all()
    assert result.chosen_by in ("model", "rule")
    assert result.reason
    assert result.rule_name in request.fitted.rules
    return result


def test_an_ordinary_function_is_answered_by_the_model_that_won_the_backtest(ask: Ask) -> None:
    result = _guarded(ask())
    assert result.chosen_by == "model"
    assert "backtest" in result.reason
    np.testing.assert_array_equal(result.seconds, result.model)


@pytest.mark.parametrize(
    "odd",
    [
        {"memory": "512MB", "time": "300d"},
        {"memory": "512MB", "time": "2us"},
        {"memory": "512MB", "time": "1s", "context_switches": 1e20, "bytes_read": 1e23},
    ],
    ids=["takes forever", "takes nothing", "switches and reads without end"],
)
def test_what_is_far_from_everything_is_left_to_the_rule(ask: Ask, odd: dict[str, object]) -> None:
    result = _guarded(ask(odd))
    assert result.chosen_by == "rule"
    assert result.unlike > 4
    assert "nothing like this" in result.reason
    np.testing.assert_array_equal(result.seconds, result.rule)


def _far_from_all(request: PredictionRequest) -> FittedBlend:
    """The same predictor, had all unseen applications been just like known ones."""
    fitted = request.fitted
    assert fitted.shared is not None
    near = replace(fitted.shared.neighbourhood, unseen={request.corpus: np.zeros((3, 2), dtype=np.float32)})
    return replace(fitted, errors=CLEARLY_BETTER, shared=replace(fitted.shared, neighbourhood=near))


def test_an_embedding_far_from_all_known_ones_is_left_to_the_rule(ask: Ask) -> None:
    request = ask()
    result = _guarded(request, _far_from_all(request))
    assert result.score == 1.0
    assert result.chosen_by == "rule"
    assert result.answering is request.fitted.rules[result.rule_name]
    assert "100.0%" in result.reason
    assert result.alike[0] in result.reason


def test_how_far_it_is_and_what_is_alike_comes_with_every_answer(ask: Ask) -> None:
    result = _guarded(ask())
    assert result.score is not None
    assert 0.0 <= result.score <= 0.99
    assert len(result.alike) == 3
    assert all(name.endswith(("(lambda)", "(openwhisk)")) for name in result.alike)


def test_what_is_far_but_was_run_twice_is_answered_after_fine_tuning_if_that_does_better(ask: Ask) -> None:
    """A function that gets slower with memory: no share of a CPU explains that."""
    sizes = (128, 512, 2048)
    request = ask(*({"memory": f"{size}MB", "time": f"{size}ms"} for size in sizes))
    result = _guarded(request, _far_from_all(request))
    assert result.chosen_by == "model"
    assert isinstance(result.answering, Adapted)
    assert "fine-tuned" in result.reason
    np.testing.assert_array_equal(result.seconds, result.answering.predict(request.case, request.known))


def test_what_the_rule_explains_well_is_not_fine_tuned(ask: Ask) -> None:
    """Nothing but computing on a share of one CPU: the rule has each run from the others to the digit."""
    request = ask(*({"memory": f"{size}MB", "time": f"{64_000_000 // size}us"} for size in (128, 256, 512)))
    result = _guarded(request, _far_from_all(request))
    assert result.chosen_by == "rule"


def test_without_an_encoder_there_is_no_score(foundation: Foundation, cases: tuple[Case, ...]) -> None:
    known = np.array([1])
    result = guarded(foundation.predictors["functions"], cases[12].known_at(known), known)
    assert result.score is None
    assert result.alike == ()


def test_a_rule_that_won_the_backtest_answers(ask: Ask) -> None:
    request = ask()
    errors = {**CLEARLY_BETTER, "median ratio": {1: 0.05, 2: 0.05, 3: 0.05}}
    result = _guarded(request, replace(request.fitted, errors=errors))
    assert result.chosen_by == "rule"
    assert result.rule_name == "median ratio"
    assert all(part in result.reason for part in ("10%", "(median ratio) 5%"))


def test_a_draw_goes_to_the_rule(ask: Ask) -> None:
    request = ask()
    draw = {who: {1: 0.1} for who in ("trimtab", "CPU share")}
    assert _guarded(request, replace(request.fitted, errors=draw)).chosen_by == "rule"


def test_the_backtest_with_as_many_runs_decides(ask: Ask) -> None:
    errors = {"trimtab": {1: 0.2, 2: 0.2, 3: 0.2}, "CPU share": {1: 0.4, 2: 0.1, 3: 0.4}}
    runs = [{"memory": f"{size}MB", "time": f"{round(123000 / size)}ms"} for size in (128, 256, 512, 1024)]
    who = []
    for count in (1, 2, 3, 4):
        request = ask(*runs[:count])
        who.append(_guarded(request, replace(request.fitted, errors=errors)).chosen_by)
    assert who == ["model", "rule", "model", "model"]


def test_a_range_that_says_nothing_is_left_to_the_rule(ask: Ask) -> None:
    request = ask()
    doubtful = replace(request.fitted, errors=CLEARLY_BETTER, margins={1: 2.0, 2: 2.0, 3: 2.0})
    result = _guarded(request, doubtful)
    assert result.chosen_by == "rule"
    assert "factor of 107 (limit 25)" in result.reason


def test_fewer_runs_than_were_tested_count_as_the_most_that_were(ask: Ask) -> None:
    request = ask({"memory": "512MB", "time": "1s"}, {"memory": "1GB", "time": "600ms"})
    errors = {"trimtab": {1: 0.1}, "CPU share": {1: 0.5}}
    assert _guarded(request, replace(request.fitted, errors=errors)).chosen_by == "model"


def test_a_model_never_tested_leaves_it_to_the_rule(ask: Ask) -> None:
    request = ask()
    result = _guarded(request, replace(request.fitted, errors={}))
    assert result.chosen_by == "rule"
    assert "never tested" in result.reason


def test_one_application_to_learn_from_is_no_test(cases: tuple[Case, ...]) -> None:
    alone = Blend(members=(Curves(),)).fit([cases[0]])
    result = guarded(alone, cases[1].known_at(np.array([0])), np.array([0]))
    assert result.chosen_by == "rule"
    assert "never tested" in result.reason


def test_a_rule_that_is_not_there_is_not_asked(ask: Ask) -> None:
    request = ask()
    errors = {**CLEARLY_BETTER, "a rule of another version": {1: 0.01}}
    assert _guarded(request, replace(request.fitted, errors=errors)).rule_name == "CPU share"


def test_measured_functions_are_mostly_answered_by_the_model(ask: Ask) -> None:
    fitted = ask().fitted
    some = read_functions(BUNDLED_FUNCTIONS).completed().cases[::25]
    known = np.array([2])
    chosen = [guarded(fitted, case.known_at(known), known).chosen_by for case in some]
    assert chosen.count("model") >= 0.9 * len(chosen)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seconds=st.floats(1e-9, 1e10),
    size=st.integers(1, 999_999),
    others=st.sets(st.integers(1, 999_999), min_size=1, max_size=4),
    switches=st.none() | st.floats(0, 1e24),
    environment=st.sampled_from(["lambda", "openwhisk"]),
)
def test_whatever_was_run_there_is_an_answer_within_its_range(
    ask: Ask, seconds: float, size: int, others: set[int], switches: float | None, environment: str
) -> None:
    run = {"memory": f"{size}MB", "time": seconds}
    if switches is not None:
        run["context_switches"] = switches
    others = others - {size} or {size % 999_999 + 1}
    result = _guarded(ask(run, at=tuple(f"{other}MB" for other in others), environment=environment))
    json.dumps([result.seconds.tolist(), result.unlike], allow_nan=False)


GIB_SECOND = 0.0000166667  # dollars
REQUEST = 0.2e-6  # dollars


def _answered(
    request: PredictionRequest, **changes: object
) -> tuple[Guarded, list[PredictedConfiguration], Decision]:
    result = replace(guarded(request.fitted, request.case, request.known), **changes)  # type: ignore[arg-type]
    made = prediction_lines(request, result, request.fitted.coverage)
    return result, made, prediction_decision(request, result, made)


def test_every_configuration_has_a_line_and_what_was_run_keeps_its_time(ask: Ask) -> None:
    request = ask({"memory": "512MB", "time": "240ms"}, {"memory": "1GB", "time": "130ms"})
    result, made, _ = _answered(request)
    assert [line.configuration for line in made] == list(request.places)
    assert [line.known for line in made] == [True, True, False, False, False, False]
    for line, seconds in zip(made[:2], (0.24, 0.13), strict=True):
        assert line.time.low == line.time.value == line.time.high == pytest.approx(seconds)
    for row, line in enumerate(made[2:], 2):
        assert line.time.low <= line.time.value <= line.time.high
        assert line.time.value == result.seconds[row]
        assert (line.rule_seconds, line.model_seconds) == (result.rule[row], result.model[row])
        assert line.time.coverage == request.fitted.coverage


def test_an_invocation_costs_memory_times_time_and_the_request(ask: Ask) -> None:
    _, made, _ = _answered(ask({"memory": "2GB", "time": "1s"}))
    for line in made:
        gib = int(line.configuration.removesuffix("MB")) / 1024
        assert line.cost is not None
        for cost, seconds in zip(
            (line.cost.low, line.cost.value, line.cost.high),
            (line.time.low, line.time.value, line.time.high),
            strict=True,
        ):
            assert cost == pytest.approx(gib * GIB_SECOND * seconds + REQUEST)


def test_what_rule_and_model_would_choose_has_the_fee_in_its_cost(ask: Ask) -> None:
    _, _, decided = _answered(ask({"memory": "512MB", "time": "1ms"}))
    for answer in (decided.rule, decided.model):
        assert answer is not None
        gib = int(str(answer.action["memory"]).removesuffix("MB")) / 1024
        expected = answer.estimates["time"].value * gib * GIB_SECOND + REQUEST
        assert answer.estimates["cost"].value == pytest.approx(expected)


def test_where_nothing_is_charged_the_fastest_is_chosen(ask: Ask) -> None:
    _, made, decided = _answered(ask({"memory": "512MB", "time": "1s"}, environment="openwhisk"))
    assert all(line.cost is None for line in made)
    fastest = min(made, key=lambda line: line.time.value)
    assert decided.action == {"memory": fastest.configuration}
    assert decided.reason.startswith("fastest of 6 in openwhisk; ")
    assert decided.estimates.keys() == {"time"}


def test_a_cluster_costs_all_of_its_machines_for_as_long_as_it_takes(ask: Ask) -> None:
    request = ask(
        {"configuration": "c4.large nodes=10", "time": "20m"},
        {"configuration": "m4.2xlarge nodes=10", "time": "11m"},
        environment="ec2",
    )
    _, made, decided = _answered(request)
    assert len(made) == 69
    hourly = request.case.setting("price_per_hour") * 10
    assert made[0].cost is not None
    assert made[0].cost.value == pytest.approx(hourly[0] / 3)
    assert all(line.cost and line.cost.low <= line.cost.value <= line.cost.high for line in made)
    cheapest = min(made, key=lambda line: line.cost.value if line.cost else np.inf)
    assert decided.action == {"configuration": cheapest.configuration}
    assert decided.reason.startswith("cheapest of 69 in ec2; ")


def test_a_place_without_a_price_makes_time_decide_for_all(ask: Ask) -> None:
    request = ask({"memory": "512MB", "time": "240ms"})
    result, made, _ = _answered(request)
    mixed = [replace(line, cost=None) if number == 3 else line for number, line in enumerate(made)]
    decided = prediction_decision(request, result, mixed)
    assert decided.action == {"memory": min(made, key=lambda line: line.time.value).configuration}
    assert decided.reason.startswith("fastest")


@pytest.mark.parametrize("chosen", ["model", "rule"])
def test_rule_and_model_each_say_what_they_would_do(ask: Ask, chosen: str) -> None:
    request = ask({"memory": "512MB", "time": "1s"}, at=("1GB", "2GB"))
    result, _, decided = _answered(
        request,
        chosen_by=chosen,
        rule_name="CPU share",
        model=np.array([1.0, 0.1, 0.2]),
        rule=np.array([1.0, 0.9, 0.01]),
        low=np.array([0.9, 0.05, 0.005]),
        high=np.array([1.1, 1.0, 0.3]),
    )
    assert decided.model is not None
    assert decided.rule.who == "rule:CPU share"
    assert decided.rule.action == {"memory": "2048MB", "seconds": 0.01}
    assert decided.model.action == {"memory": "1024MB", "seconds": 0.1}
    answer = decided.model if chosen == "model" else decided.rule
    assert decided.chosen_by == answer.who
    assert decided.action == {"memory": answer.action["memory"]}
    assert decided.estimates == answer.estimates
    assert result.reason in decided.reason
    for item in (decided.rule, decided.model):
        assert item.estimates["time"].value == item.action["seconds"]
        assert item.estimates["cost"].unit == "$"


def test_the_others_are_alternatives_and_all_of_it_survives_json(ask: Ask) -> None:
    _, made, decided = _answered(ask(application="thumbnails"))
    assert decided.kind == "predict"
    assert decided.subject == "thumbnails"
    places = [decided.action["memory"], *(other.action["memory"] for other in decided.alternatives)]
    assert sorted(map(str, places)) == sorted(line.configuration for line in made)
    text = json.dumps(to_plain(decided), allow_nan=False)
    assert "cpus=" not in text
    assert from_plain(Decision, json.loads(text)) == decided


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
    answers = [predict(description, ["1024MB", "2GB"], shipped) for description in (TOLD, path, str(path))]
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
    with pytest.raises(NotFoundError, match='"3GB"'):
        answer.at("3GB")
    with pytest.raises(BadInputError, match="memory"):
        answer.at("large")
    clusters = predict(ON_CLUSTERS, "all", shipped)
    assert clusters.at("C4.Large  nodes=10").known
    with pytest.raises(NotFoundError, match=r"c4\.large nodes=10"):
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


@pytest.mark.parametrize("description", [TOLD, ON_CLUSTERS], ids=["function", "clusters"])
def test_the_parts_of_every_answer_add_up_to_it(shipped: Foundation, description: dict[str, Any]) -> None:
    answer = predict(description, "all", shipped)
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


@pytest.fixture
def answer(shipped: Foundation) -> Prediction:
    return predict({"observations": [{"memory": "512MB", "time": "1s"}]}, "1GB", shipped)


def _with(answer: Prediction, **changes: object) -> str:
    return likeness(replace(answer, guarded=replace(answer.guarded, **changes)))  # type: ignore[arg-type]


def test_how_unlike_it_is_is_said_by_numbers_and_by_embedding(answer: Prediction) -> None:
    by_numbers = _with(answer, unlike=1.26, score=None)
    assert "1.3 standard deviations" in by_numbers
    both = _with(answer, unlike=1.26, score=0.4, alike=("sorting", "hashing"))
    assert both.startswith(by_numbers)
    assert "40%" in both
    assert "sorting, hashing" in both
    assert "standard deviations" not in _with(answer, unlike=math.inf, score=None)


def test_parts_have_signs() -> None:
    assert (signed(0.25), signed(-2.0), signed(0.0)) == ("+250 ms", "-2 s", "+0 s")


def test_what_was_measured_is_not_taken_apart(answer: Prediction) -> None:
    assert explained(answer, "512MB")[0] == "512MB takes 1 s, as measured"
    assert len(explained(answer, "1GB")) > len(explained(answer, "512MB"))


ROOT = Path(__file__).resolve().parents[3]


def _block(file: str, opening: str) -> str:
    result = re.search(re.escape(opening) + r"(.*?)(?:\n\n|```)", (ROOT / file).read_text("utf-8"), re.DOTALL)
    assert result
    return result[1]


def test_the_call_from_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    description = _block("docs/guide/predict.md", "$ cat thumbnailer.yaml\n")
    Path("thumbnailer.yaml").write_text(description, encoding="utf-8")
    guide = (ROOT / "docs/guide/predict.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    exec(snippet, names := dict[str, object]())
    seconds, both, who, *parts = capsys.readouterr().out.splitlines()
    time, low, high = map(float, seconds.split())
    assert low < time < high
    assert "unit='$'" in both
    assert who.split()[0] in ("model", "rule")
    assert who.split()[-1] in ("512MB", "1024MB", "2048MB")
    assert sum(float(part.split()[-1]) for part in parts) == pytest.approx(time)
    assert names["answer"].application == "thumbnailer"  # type: ignore[attr-defined]
    assert [path.name for path in tmp_path.iterdir()] == ["thumbnailer.yaml"]
