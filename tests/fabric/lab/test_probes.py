"""The outage of a flow is its longest gap with packets missing, however unevenly they were sent."""

from hypothesis import given, settings, strategies as st

from trimtab.fabric.lab.probes import Arrival, outage_of

PERIOD = 0.001
PACKETS = 400


def flow(number: int, lost: range, pauses: dict[int, float] | None = None) -> list[Arrival]:
    """A second's packets of a flow without those in `lost`; the sender pauses before some of them."""
    arrivals, sent = [], 10.0
    for place in range(PACKETS):
        sent += PERIOD + (pauses or {}).get(place, 0.0)
        if place not in lost:
            arrivals.append(Arrival(number, place, sent, sent + 0.0001))
    return arrivals


@settings(max_examples=30)
@given(first=st.integers(1, 150), length=st.integers(0, 200), order=st.randoms(use_true_random=False))
def test_it_is_as_long_as_what_was_lost(first: int, length: int, order) -> None:  # type: ignore[no-untyped-def]
    arrivals = [*flow(0, range(first, first + length)), *flow(1, range(0))]
    order.shuffle(arrivals)
    outage = outage_of(arrivals, 2, 10.0, 10.0 + (PACKETS + 1) * PERIOD, PERIOD)
    assert abs(outage.flows[0] - length * PERIOD) < 1e-6
    assert outage.flows[1] == 0
    assert abs(outage.worst - length * PERIOD) < 1e-6
    assert outage.lost == length
    assert outage.flows_hit == (length > 0)


def test_a_sender_that_paused_is_no_outage() -> None:
    outage = outage_of(flow(0, range(0), {100: 0.5}), 1, 10.0, 10.9, PERIOD)
    assert outage.flows == (0.0,)


def test_only_what_is_between_both_times_counts() -> None:
    arrivals = flow(0, range(100, 200))
    assert outage_of(arrivals, 1, 10.0, 10.09, PERIOD).flows == (0.0,)
    assert abs(outage_of(arrivals, 1, 10.0, 10.15, PERIOD).worst - 0.05) < 2 * PERIOD
    assert outage_of(arrivals, 1, 10.3, 10.4, PERIOD).flows == (0.0,)


def test_a_flow_that_never_comes_back_is_gone_to_the_end() -> None:
    outage = outage_of(flow(0, range(100, PACKETS)), 2, 10.0, 10.4, PERIOD)
    assert abs(outage.flows[0] - 0.3) < 3 * PERIOD
    assert abs(outage.flows[1] - 0.4) < 3 * PERIOD
    assert outage.flows_hit == 2
