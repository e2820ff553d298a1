"""What a file asks, and what is said about one that cannot be answered."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st

from trimtab.core import BadInputError, NotFoundError, TrimtabError
from trimtab.predict import Foundation
from trimtab.predict.fewshot.request import PredictionRequest, read_request

Ask = Callable[..., PredictionRequest]

MIB = 2.0**20
RUN = {"memory": "512MB", "time": "240ms"}
ON_A_CLUSTER = {"configuration": "c4.large nodes=10", "time": "20m"}


def _refused(ask: Ask, *observations: Any, **fields: Any) -> str:
    with pytest.raises(TrimtabError) as refusal:
        ask(*observations, **fields)
    sentence = str(refusal.value)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("write", [yaml.safe_dump, json.dumps], ids=["YAML", "JSON"])
def test_yaml_and_json_say_the_same(shipped: Foundation, tmp_path: Path, write: Callable[[Any], str]) -> None:
    path = tmp_path / "thumbnails"
    path.write_text(write({"environment": "openwhisk", "observations": [RUN]}), encoding="utf-8")
    request = read_request(path, ["1GiB"], shipped)
    assert request.places == ("512MB", "1024MB")
    assert request.known.tolist() == [0]
    assert request.case.environment == "openwhisk"
    assert request.case.application == "thumbnails"
    assert request.case.seconds[0] == pytest.approx(0.24)
    assert math.isnan(request.case.seconds[1])


def test_one_run_without_any_metric_is_enough(ask: Ask) -> None:
    request = ask(RUN)
    assert np.isnan(request.case.metrics).all()
    assert request.of_function
    assert request.case.environment == "lambda"
    assert request.places == ("512MB", "128MB", "256MB", "1024MB", "2048MB", "3008MB")


def test_a_size_buys_what_the_law_of_the_place_gives(ask: Ask) -> None:
    cpus = {place: ask(RUN, at=("2GiB",), environment=place).case.setting("cpus")[1] for place in
            ("lambda", "openwhisk")}  # fmt: skip
    assert cpus == {"lambda": pytest.approx(2048 / 1769), "openwhisk": pytest.approx(1.0)}


def test_sizes_that_were_learned_from_are_recognised(ask: Ask) -> None:
    request = ask(RUN)
    curves = request.fitted.members[0]
    assert set(request.case.configurations) <= set(curves.matrix.column_of)  # type: ignore[attr-defined]


def test_metrics_have_units_and_become_rates(ask: Ask) -> None:
    case = ask(
        {
            "memory": "512MB",
            "time": "2s",
            "cpu_user": "500ms",
            "cpu_system": 0.1,
            "throttled": "1s",
            "memory_used": "256MiB",
            "context_switches": 10,
            "involuntary_switches": "4",
            "bytes_read": "8kB",
            "bytes_written": 4000,
            "bytes_received": "2 MiB",
            "bytes_sent": 0,
            "min": "1s",
            "median": "1900ms",
            "deviation": "200ms",
        }
    ).case
    expected = {
        "cpu_user": 0.25,
        "cpu_system": 0.05,
        "throttled": 0.5,
        "memory_used": 256 * MIB,
        "memory_fraction": 0.5,
        "context_switches": 5.0,
        "involuntary_switches": 2.0,
        "bytes_read": 4000.0,
        "bytes_written": 2000.0,
        "bytes_received": MIB,
        "bytes_sent": 0.0,
        "seconds_least": 0.5,
        "seconds_median": 0.95,
        "seconds_deviation": 0.1,
    }
    assert {name: case.metric(name)[0] for name in expected} == pytest.approx(expected)
    assert np.isnan(case.metrics[1:]).all()


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [
        ("512MB", 512),
        ("512 MiB", 512),
        ("512m", 512),
        ("536870912", 512),
        ("1GB", 1024),
        ("1.5GiB", 1536),
        ("0.5g", 512),
        ("1MB", 1),
        ("10240MB", 10240),
        ("900GB", 921_600),
    ],
)
def test_a_size_is_read_as_platforms_write_it(ask: Ask, text: str, megabytes: int) -> None:
    request = ask({"memory": text, "time": "1s"}, at=("777MB",))
    assert request.places[0] == f"{megabytes}MB"
    assert request.case.setting("memory_bytes")[0] == megabytes * MIB


@pytest.mark.parametrize(
    "text", ["512", "0MB", "0.5MB", "100TB", "-1MB", "large", "", "nan", "inf", "1e999MB"]
)
def test_what_is_no_size_is_refused_in_a_run_and_in_a_question(ask: Ask, text: str) -> None:
    assert "observations[0]" in _refused(ask, {"memory": text, "time": "1s"})
    _refused(ask, RUN, at=(text,))


@pytest.mark.parametrize(
    ("description", "sentence"),
    [
        ("", "odd.yaml is None"),
        ("- 1\n- 2\n", "odd.yaml is [1, 2]"),
        ("just words", "odd.yaml is just words"),
        ("{}", "observations is missing"),
        ("observations:\n", "observations is None"),
        ("observations: []", "observations is []"),
        ("observations: {memory: 512MB, time: 1s}", "observations is {"),
        ("observations: 3", "observations is 3"),
        ("observations: [", "line 1, column 16"),
        ("a: 1\nb: [}\n", "line 2, "),
        ("\x00", "cannot be read as YAML"),
        ("time: 2026-99-99", "cannot be read as YAML"),
        ("[" * 3000, "cannot be read as YAML"),
        ("observation: []", 'no field "observation" (did you mean observations?)'),
    ],
)
def test_a_file_that_asks_nothing_is_refused(
    shipped: Foundation, tmp_path: Path, description: str, sentence: str
) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(description, encoding="utf-8")
    with pytest.raises(BadInputError) as refusal:
        read_request(path, ["all"], shipped)
    assert sentence in str(refusal.value).replace("'", "")
    assert "\n" not in str(refusal.value)


def test_no_file_a_folder_and_bytes_are_refused(shipped: Foundation, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=re.escape(str(tmp_path))):
        read_request(tmp_path / "none", ["all"], shipped)
    with pytest.raises(BadInputError, match=re.escape(str(tmp_path))):
        read_request(tmp_path, ["all"], shipped)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(BadInputError, match=re.escape(str(tmp_path))):
        read_request(tmp_path / "bytes", ["all"], shipped)


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        ({"memory": "512MB"}, ".time is missing"),
        ({"memory": "512MB", "time": None}, ".time is None; it should be a duration"),
        ({"time": "1s"}, "as memory or as configuration"),
        ({}, ".time is missing"),
        ({"memory": "512MB", "time": 0}, ".time is 0; it should be greater than"),
        ({"memory": "512MB", "time": "-1s"}, ".time is -1s; it should be a duration"),
        ({"memory": "512MB", "time": "soon"}, ".time is soon; it should be a duration"),
        ({"memory": "512MB", "time": math.nan}, ".time is NaN; it should be a duration"),
        ({"memory": "512MB", "time": math.inf}, ".time is Infinity; it should be a duration"),
        ({"memory": "512MB", "time": "1e300s"}, ".time is 1e300s; it should be less than"),
        ({"memory": "512MB", "time": 1e-300}, ".time is 1e-300; it should be greater than"),
        ({"memory": "512MB", "time": "1e999"}, ".time is 1e999; it should be a duration"),
        ({"memory": "512MB", "time": ["1s"]}, ".time is [1s]; it should be a duration"),
        ({"memory": "all", "time": "1s"}, 'not in "all"'),
        ({"memory": "much", "time": "1s"}, '"much" is not an amount of memory'),
        ({**RUN, "cpu_usr": "1ms"}, 'no field "cpu_usr" in observations[1] (did you mean cpu_user?)'),
        ({**RUN, "configuration": "512MB"}, "where it ran once"),
        ({**RUN, "cpu_user": "100h"}, "(cpu_user) in 240 ms"),
        ({**RUN, "memory_used": "10GB"}, "memory_used: 9.31 GiB is more than the 512MB it had"),
        ({**RUN, "cpu_user": "lots"}, ".cpu_user is lots; it should be a duration"),
        ({**RUN, "cpu_user": -1}, ".cpu_user is -1; it should be "),
        ({**RUN, "context_switches": -1}, ".context_switches is -1; it should be greater than"),
        ({**RUN, "context_switches": "some"}, ".context_switches is some; it should be a number"),
        ({**RUN, "context_switches": math.nan}, ".context_switches is NaN; it should be a number"),
        ({**RUN, "context_switches": math.inf}, ".context_switches is Infinity; it should be a number"),
        ({**RUN, "context_switches": 10**400}, ".context_switches is "),
        ({**RUN, "context_switches": [1]}, ".context_switches is [1]; it should be a number"),
        ({**RUN, "bytes_read": -5}, ".bytes_read is -5; it should be "),
        ({**RUN, "bytes_read": "-5MB"}, ".bytes_read is -5MB; it should be an amount"),
        ({**RUN, "bytes_sent": None}, ".bytes_sent is None; it should be an amount"),
        ({**RUN, "memory_used": -1}, ".memory_used is -1; it should be "),
        ({**RUN, "memory_used": "all of it"}, ".memory_used is all of it; it should be an amount"),
        ({**RUN, "memory_used": math.inf}, ".memory_used is Infinity; it should be an amount"),
        ({**RUN, "min": "quick"}, ".min is quick; it should be a duration"),
    ],
)
def test_a_run_that_cannot_be_is_refused_and_its_number_said(ask: Ask, run: Any, sentence: str) -> None:
    message = _refused(ask, {"memory": "1GB", "time": "100ms"}, run)
    assert sentence in message.replace("'", "")
    assert "observations[1]" in message


@pytest.mark.parametrize("run", [["512MB", "240ms"], "512MB", None])
def test_a_run_without_names_is_refused_and_its_number_said(ask: Ask, run: Any) -> None:
    assert "run 2" in _refused(ask, {"memory": "1GB", "time": "100ms"}, run)


def test_what_has_several_lines_is_refused_in_one(ask: Ask) -> None:
    for run in ({"memory": "a\nb", "time": "1s"}, {**RUN, "time": "a\nb"}, {**RUN, "a\nb": 1}):
        assert re.search(r"a(\\n| )b", _refused(ask, run))
    assert "a b" in _refused(ask, RUN, environment="a\nb")


def test_an_environment_nobody_learned_in_is_refused_with_those_there_are(ask: Ask) -> None:
    with pytest.raises(NotFoundError, match=r'"moon".*ec2.*lambda'):
        ask(RUN, environment="moon")


@pytest.mark.parametrize("environment", ["ec2", "cloud"])
def test_a_configuration_nobody_learned_is_refused_with_some_there_are(ask: Ask, environment: str) -> None:
    message = _refused(ask, {"configuration": "abacus", "time": "1h"}, environment=environment)
    assert 'no configuration is called "abacus"; there are ' in message
    assert "such as" in message


def test_on_a_cluster_all_is_every_configuration_learned_from(ask: Ask) -> None:
    request = ask(ON_A_CLUSTER, {"configuration": "m4.2xlarge nodes=10", "time": "11m"}, environment="ec2")
    assert not request.of_function
    assert len(request.case) == 69
    assert request.places[:2] == ("c4.large nodes=10", "m4.2xlarge nodes=10")
    assert request.corpus == "scout"
    assert (request.case.setting("price_per_hour") > 0).all()


def test_a_near_miss_is_answered_with_what_may_be_meant(ask: Ask) -> None:
    message = _refused(ask, ON_A_CLUSTER, environment="ec2", at=("c4.xlarge node=10",))
    assert "did you mean c4.xlarge nodes=10" in message
    assert "did you mean observations?" in _refused(ask, observation=[])
    assert "did you mean 1024MB?" in _refused(ask, at=("1024",))


def test_a_configuration_is_known_whatever_its_case_and_spaces(ask: Ask) -> None:
    request = ask(ON_A_CLUSTER, environment="ec2", at=("C4.XLARGE   nodes=10",))
    assert request.places == ("c4.large nodes=10", "c4.xlarge nodes=10")


def test_runs_of_one_size_that_agree_are_averaged(ask: Ask) -> None:
    request = ask(
        {"memory": "512MB", "time": "1s", "cpu_user": "100ms", "bytes_read": 100},
        {"memory": "1GB", "time": "700ms"},
        {"memory": "512MiB", "time": "1.44s", "cpu_user": "432ms"},
    )
    case = request.case
    assert request.places[:2] == ("512MB", "1024MB")
    assert request.known.tolist() == [0, 1]
    assert case.seconds[0] == pytest.approx(1.2)
    assert case.metric("cpu_user")[0] == pytest.approx((0.1 + 0.3) / 2)
    assert case.metric("bytes_read")[0] == pytest.approx(100.0)


def test_runs_of_one_size_that_contradict_are_refused(ask: Ask) -> None:
    message = _refused(ask, {"memory": "512MB", "time": "1s"}, {"memory": "512MB", "time": "2.1s"})
    assert "512MB took 1 s and 2.1 s" in message
    assert "cpus=" not in message


def test_what_is_asked_is_asked_once_and_what_was_run_is_not_asked(ask: Ask) -> None:
    assert ask(RUN, at=("1GB", "1024MB", "512MB", "1GiB")).places == ("512MB", "1024MB")


def test_more_places_than_anyone_runs_are_refused(ask: Ask) -> None:
    runs = [{"memory": f"{size}MB", "time": "1s"} for size in range(100, 201)]
    assert "101" in _refused(ask, *runs)
    assert len(ask(*runs[1:], at=("1GB",)).known) == 100


def test_a_field_left_empty_is_as_good_as_none(ask: Ask) -> None:
    case = ask(RUN, environment=None, application=None, data=None).case
    assert (case.environment, case.application, case.data) == ("lambda", "application", "")


@pytest.mark.parametrize("bomb", [True, False], ids=["of itself", "of many"])
def test_a_few_lines_that_stand_for_very_much_are_no_harm(
    shipped: Foundation, tmp_path: Path, bomb: bool
) -> None:
    nested = "*n9" if not bomb else "&x [*x]"
    rows = [f"  - &n{i} [{', '.join([f'*n{i - 1}'] * 9)}]" for i in range(1, 10)]
    lists = "" if bomb else "data: &d\n  - &n0 [a]\n" + "\n".join(rows) + "\n"
    path = tmp_path / "bomb.yaml"
    path.write_text(f"{lists}application: {nested}\nobservations: [{{memory: 512MB, time: 1s}}]")
    assert len(read_request(path, ["all"], shipped).case.application) < 100


def test_a_file_far_too_large_is_refused_unread(shipped: Foundation, tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text("observations: [{memory: 512MB, time: 1s}]\n" + "# more\n" * 1_500_000)
    with pytest.raises(BadInputError, match="is larger than 1 MiB"):
        read_request(path, ["all"], shipped)
    with pytest.raises(BadInputError, match="is larger than 1 MiB"):
        read_request(Path("/dev/zero"), ["all"], shipped)


def test_nothing_left_to_predict_is_said(ask: Ask) -> None:
    assert "nothing to predict" in _refused(ask, RUN, at=("512MB",))
    assert "nothing to predict" in _refused(ask, RUN, at=())


def test_an_application_may_have_any_name(ask: Ask) -> None:
    assert ask(RUN, application="\x1b[31mred\a").case.application == "[31mred"
    assert ask(RUN, application=7).case.application == "7"
    assert ask(RUN, application="Überraschung [red]").case.application == "Überraschung [red]"


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    times=st.dictionaries(st.integers(1, 999_999), st.floats(1e-9, 1e10), min_size=1, max_size=6),
    targets=st.integers(1, 999_999),
    counts=st.floats(0, 1e24),
)
def test_every_run_that_can_be_comes_back_as_it_was_told(
    ask: Ask, times: dict[int, float], targets: int, counts: float
) -> None:
    times.pop(targets, None)
    runs = [
        {"memory": f"{size}MB", "time": seconds, "bytes_read": counts} for size, seconds in times.items()
    ] or [{"memory": f"{targets % 999_999 + 1}MB", "time": 1.0, "bytes_read": counts}]
    case = ask(*runs, at=(f"{targets}MB",)).case
    assert len(case) == len(runs) + 1
    np.testing.assert_allclose(case.seconds[:-1], [run["time"] for run in runs])
    np.testing.assert_allclose(case.metric("bytes_read")[:-1] * case.seconds[:-1], counts, atol=1e-290)
    np.testing.assert_array_equal(
        case.setting("memory_bytes") / MIB, [int(str(run["memory"])[:-2]) for run in runs] + [targets]
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    description=st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["memory", "time", "observations", "environment", "configuration", "bytes_read"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_whatever_a_file_says_there_is_a_request_or_a_sentence(
    shipped: Foundation, tmp_path: Path, description: Any
) -> None:
    path = tmp_path / "any.json"
    for text in (
        json.dumps(description),
        json.dumps({"observations": [description]}),
        yaml.safe_dump(description),
    ):
        path.write_text(text, encoding="utf-8")
        message = ""
        try:
            read_request(path, ["all"], shipped)
        except TrimtabError as error:
            message = str(error)
        assert "\n" not in message
