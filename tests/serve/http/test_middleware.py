"""How often somebody may ask."""

from hypothesis import given, strategies as st

from trimtab.serve.http.middleware import Buckets

waits = st.lists(st.floats(0.0, 2.0), min_size=1, max_size=200)


@given(st.floats(0.5, 100.0), waits)
def test_nobody_gets_more_than_the_rate_and_one_bucket(rate: float, steps: list[float]) -> None:
    buckets, now, taken = Buckets(rate, 2 * rate), 0.0, 0
    for step in steps:
        now += step
        wait = buckets.take("a", now)
        taken += wait == 0.0
        if wait:
            # A hair later than told, as floats are not exact.
            assert Buckets(rate, 2 * rate, dict(buckets._levels)).take("a", now + wait * 1.001 + 1e-9) == 0.0
    assert taken <= 2 * rate + rate * now + 1


@given(waits)
def test_one_does_not_wait_for_another(steps: list[float]) -> None:
    buckets = Buckets(1.0, 2.0)
    for number, _ in enumerate(steps):
        assert buckets.take(f"caller {number}", 0.0) == 0.0


def test_a_rate_of_nothing_is_no_limit() -> None:
    buckets = Buckets(0.0, 0.0)
    assert all(buckets.take("a", 0.0) == 0.0 for _ in range(1000))
