"""The search for the highest rate goes up or down until the answer changes, and no further."""

from trimtab_bench.serve.ceiling import Step, ceiling, steps_to_ceiling


def server(stands: float) -> "list[Step]":
    return steps_to_ceiling(lambda rate: seen(rate, stands), 1000.0, 10)


def seen(rate: float, stands: float) -> Step:
    return Step(rate, min(rate, stands), 10.0 if rate <= stands else 900.0, 0, 1.0, 0.1)


def test_it_goes_up_until_a_step_is_too_much() -> None:
    steps = server(stands=1500.0)
    assert [round(step.rate) for step in steps] == [1000, 1200, 1440, 1728]
    assert [step.stood for step in steps] == [True, True, True, False]
    assert round(ceiling(steps)) == 1440


def test_it_goes_down_until_a_step_is_stood() -> None:
    steps = server(stands=800.0)
    assert [step.stood for step in steps] == [False, False, True]
    assert round(ceiling(steps)) == 694


def test_there_is_no_ceiling_where_nothing_is_stood() -> None:
    assert ceiling(server(stands=1.0)) == 0.0
    assert len(server(stands=1.0)) == 10


def test_a_failed_request_or_answers_that_do_not_keep_up_are_too_much() -> None:
    assert not Step(1000.0, 1000.0, 5.0, 1, 1.0, 0.1).stood
    assert not Step(1000.0, 900.0, 5.0, 0, 1.0, 0.1).stood
    assert not Step(1000.0, 1000.0, 50.0, 0, 1.0, 0.1).stood
    assert Step(1000.0, 1000.0, 49.9, 0, 1.0, 0.1).stood
