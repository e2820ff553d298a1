"""Enumerate, drop what cannot be, estimate, rank."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from trimtab.catalog import OfferTable, load_offers
from trimtab.core import BadInputError, Model, NotFoundError, Offer, Operators, Profile
from trimtab.core.units import parse_bytes
from trimtab.recommend import Assumptions, Recommendation, Request, recommend, work

MakeOffer = Callable[..., Offer]
MakeProfile = Callable[..., Profile]


def search(profile: Profile, offers: list[Offer] | None = None, **request: object) -> Recommendation:
    table = OfferTable.from_offers(offers) if offers else load_offers()
    return recommend(profile, table, Request(**request), work(profile))  # type: ignore[arg-type]


@pytest.mark.parametrize("objective", ["cost", "time", "balanced"])
def test_rows_are_ranked_by_the_objective(make_profile: MakeProfile, objective: str) -> None:
    rows = search(make_profile(), objective=objective, max_nodes=4, top=50).rows
    values = {
        "cost": [r.cost.value for r in rows],
        "time": [r.time.value for r in rows],
        "balanced": [r.cost.value * r.time.value for r in rows],
    }[objective]
    assert values == sorted(values)
    assert len(rows) == 50


def test_a_slower_machine_at_the_same_price_ranks_lower(
    make_profile: MakeProfile, make_offer: MakeOffer
) -> None:
    slow, fast = make_offer(), make_offer(instance="fast", accelerator="A100-80GB")
    rows = search(make_profile(), [slow, fast], objective="cost").rows
    assert [r.configuration.offer.instance for r in rows] == ["fast", "g4dn.xlarge"]


def test_what_does_not_fit_is_left_out_and_says_so(make_profile: MakeProfile, make_offer: MakeOffer) -> None:
    offers = [make_offer(), make_offer(instance="large", accelerator="H200")]
    result = search(make_profile(), offers, batch_sizes=(1024,))
    assert [r.configuration.offer.instance for r in result.rows] == ["large"]
    reason = next(d.reason for d in result.dropped if d.reason.startswith("T4 memory: a step needs "))
    need, room = (parse_bytes(m) for m in re.findall(r"[\d.]+ [GM]iB", reason))
    assert need > room


def test_a_row_that_may_run_out_of_memory_says_so(make_profile: MakeProfile, make_offer: MakeOffer) -> None:
    profile = make_profile()
    sizes = [8 * n for n in range(1, 40)]
    results = [search(profile, [make_offer(accelerator="H200")], batch_sizes=(100 * b,)) for b in (1, 10)]
    assert not any("run out of memory" in note for r in results for note in r.notes)
    tight = []
    for size in sizes:
        try:
            result = search(profile, [make_offer()], batch_sizes=(size,))
        except BadInputError:
            break
        row = result.rows[0]
        warned = any("may run out of memory" in note for note in result.notes)
        assert warned == (row.memory_high > row.memory_limit)
        tight.append(warned)
    assert tight[0] is False
    assert tight[-1] is True


def test_nothing_that_fits_is_one_sentence_with_the_need(
    make_profile: MakeProfile, make_offer: MakeOffer
) -> None:
    with pytest.raises(BadInputError, match="T4 memory"):
        search(make_profile(), [make_offer()], batch_sizes=(100_000,))


def test_an_unknown_accelerator_is_left_out_by_name(make_profile: MakeProfile, make_offer: MakeOffer) -> None:
    result = search(make_profile(), [make_offer(), make_offer(instance="odd", accelerator="Zeta-9")])
    assert ["Zeta-9" in d.reason for d in result.dropped] == [True]


def test_a_device_that_only_infers_is_never_recommended(
    make_profile: MakeProfile, make_offer: MakeOffer
) -> None:
    result = search(make_profile(), [make_offer(), make_offer(instance="inf2", accelerator="Inferentia2")])
    assert all(r.configuration.offer.accelerator != "Inferentia2" for r in result.rows)
    assert any("only infer" in d.reason for d in result.dropped)


def test_a_device_that_needs_a_port_is_considered_only_when_named(
    make_profile: MakeProfile, make_offer: MakeOffer
) -> None:
    offers = [make_offer(), make_offer(instance="tpu", accelerator="TPU-v5e")]
    assert {r.configuration.offer.instance for r in search(make_profile(), offers).rows} == {"g4dn.xlarge"}
    named = search(make_profile(), offers, accelerators=("TPU-v5e",))
    assert {r.configuration.offer.instance for r in named.rows} == {"tpu"}


def test_a_script_of_one_process_is_offered_one_device_unless_told_otherwise(
    make_profile: MakeProfile, make_offer: MakeOffer
) -> None:
    offers = [make_offer(), make_offer(instance="eight", accelerators=8)]
    alone = search(make_profile(workers=1), offers)
    assert {r.configuration.devices for r in alone.rows} == {1}
    assert any("one process" in note for note in alone.notes)
    result = search(make_profile(workers=1), offers, max_nodes=2)
    assert {r.configuration.devices for r in result.rows} == {1, 2, 8, 16}
    shared = search(make_profile(workers=2), offers)
    assert {r.configuration.devices for r in shared.rows} == {1, 2, 3, 4, 8, 16, 24, 32}


def test_more_nodes_finish_sooner_but_not_in_proportion(
    make_profile: MakeProfile, make_offer: MakeOffer
) -> None:
    rows = search(make_profile(), [make_offer()], max_nodes=4, objective="time").rows
    by_nodes = {r.configuration.nodes: r.time.value for r in rows}
    assert by_nodes[1] > by_nodes[2] > by_nodes[4]
    assert by_nodes[4] > by_nodes[1] / 4


def test_the_same_machine_is_listed_once_in_its_cheapest_region(
    make_profile: MakeProfile, make_offer: MakeOffer
) -> None:
    dear, cheap = make_offer(), make_offer(region="us-west-2", price=0.5 / 3600)
    rows = search(make_profile(), [dear, cheap]).rows
    assert [r.configuration.offer.region for r in rows] == ["us-west-2"]


def test_spot_is_considered_only_when_asked_and_costs_restarts(
    make_profile: MakeProfile, make_offer: MakeOffer
) -> None:
    without = search(make_profile(), [make_offer()])
    assert not any(r.configuration.spot for r in without.rows)
    rows = {r.configuration.spot: r for r in search(make_profile(), [make_offer()], spot=True).rows}
    assert rows[True].cost.value < rows[False].cost.value
    assert rows[True].time.value > rows[False].time.value
    frequent = search(
        make_profile(), [make_offer()], spot=True, assume=Assumptions(interruptions_per_hour=0.5)
    )
    lost_often = next(r for r in frequent.rows if r.configuration.spot)
    assert lost_often.time.value > rows[True].time.value


def test_an_offer_without_a_spot_price_has_no_spot_row(
    make_profile: MakeProfile, make_offer: MakeOffer
) -> None:
    rows = search(make_profile(), [make_offer(spot_price=None)], spot=True).rows
    assert [r.configuration.spot for r in rows] == [False]


def test_a_deadline_nothing_meets_names_the_nearest(make_profile: MakeProfile, make_offer: MakeOffer) -> None:
    offers = [make_offer(), make_offer(instance="fast", accelerator="H100")]
    with pytest.raises(BadInputError, match=r"1m.*aws/us-east-1/fast x1"):
        search(make_profile(), offers, deadline=60.0)


def test_a_budget_nothing_meets_names_the_cheapest(make_profile: MakeProfile, make_offer: MakeOffer) -> None:
    offers = [make_offer(price=5 / 3600), make_offer(instance="cheap", price=1 / 3600)]
    with pytest.raises(BadInputError, match=r"\$0\.0100.*aws/us-east-1/cheap"):
        search(make_profile(), offers, budget=0.01)


def test_every_row_meets_the_deadline_and_the_budget(make_profile: MakeProfile) -> None:
    free = search(make_profile(), max_nodes=4, top=5, objective="time").rows
    deadline, budget = free[0].time.value * 3, free[0].cost.value * 2
    rows = search(make_profile(), max_nodes=4, top=500, deadline=deadline, budget=budget).rows
    assert rows
    assert all(r.time.value <= deadline and r.cost.value <= budget for r in rows)


def test_an_unknown_cloud_is_refused_with_those_there_are(make_profile: MakeProfile) -> None:
    with pytest.raises(NotFoundError, match=r'"nimbus".*aws, azure'):
        search(make_profile(), clouds=("nimbus",))


def test_an_unknown_objective_is_refused_with_those_there_are(make_profile: MakeProfile) -> None:
    with pytest.raises(NotFoundError, match="cost, time, balanced"):
        search(make_profile(), objective="luck")


def test_the_frontier_holds_exactly_what_nothing_beats(make_profile: MakeProfile) -> None:
    result = search(make_profile(), max_nodes=4)
    time, cost = result.candidates.time, result.candidates.cost
    front = set(result.frontier.tolist())
    for i in result.feasible.tolist():
        beaten = (
            ((time[result.feasible] <= time[i]) & (cost[result.feasible] < cost[i]))
            | ((time[result.feasible] < time[i]) & (cost[result.feasible] <= cost[i]))
        ).any()
        if i in front:
            assert not beaten
        elif not beaten:  # the same time and cost as a member of the frontier
            assert any(time[j] == time[i] and cost[j] == cost[i] for j in front)


def test_parts_add_up_to_the_step_and_estimates_hold_their_value(make_profile: MakeProfile) -> None:
    for row in search(make_profile(), max_nodes=4, spot=True, top=100).rows:
        assert sum(row.parts.values()) == pytest.approx(row.step_seconds)
        assert row.time.low <= row.time.value <= row.time.high
        assert row.cost.value == pytest.approx(row.time.value * row.configuration.price)
        assert row.memory <= row.memory_limit


def test_20000_configurations_are_searched(make_profile: MakeProfile) -> None:
    result = search(make_profile(), max_nodes=60, spot=True)
    assert result.considered > 20_000


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(price=st.floats(0.01, 100), nodes=st.integers(1, 8), batch=st.integers(1, 64))
def test_time_does_not_depend_on_the_price_and_cost_is_proportional_to_it(
    make_profile: MakeProfile, make_offer: MakeOffer, price: float, nodes: int, batch: int
) -> None:
    request = {"max_nodes": nodes, "batch_sizes": (batch,)}
    base = search(make_profile(), [make_offer()], objective="time", **request).rows
    priced = search(make_profile(), [make_offer(price=price / 3600)], objective="time", **request).rows
    assert [r.time for r in base] == [r.time for r in priced]
    assert np.allclose([r.cost.value * price for r in base], [r.cost.value for r in priced])


def test_a_profile_without_a_model_is_refused_in_one_sentence(make_profile: MakeProfile) -> None:
    with pytest.raises(BadInputError, match="model"):
        search(replace(make_profile(), model=None))


def test_a_larger_machine_that_is_only_dearer_is_counted_not_ranked(
    make_profile: MakeProfile, make_offer: MakeOffer
) -> None:
    small, large = make_offer(), make_offer(instance="large", vcpus=32.0, price=9 / 3600)
    elsewhere = make_offer(instance="other", cloud="gcp", price=9 / 3600)
    rows = search(make_profile(), [small, large, elsewhere]).rows
    assert [(r.configuration.offer.instance, r.dearer) for r in rows] == [("g4dn.xlarge", 1), ("other", 0)]


def test_a_larger_machine_that_feeds_its_accelerator_faster_is_ranked(
    make_profile: MakeProfile, make_offer: MakeOffer
) -> None:
    profile = make_profile(seconds=[4.0] * 20, input_wait=3.9, loader_workers=16)
    offers = [make_offer(), make_offer(instance="large", vcpus=32.0, price=9 / 3600)]
    rows = search(profile, offers, objective="time").rows
    assert [(r.configuration.offer.instance, r.dearer) for r in rows] == [("large", 0), ("g4dn.xlarge", 0)]


def test_arm_machines_are_ranked_only_when_asked_for(
    make_profile: MakeProfile, make_offer: MakeOffer
) -> None:
    offers = [make_offer(), make_offer(instance="g5g.xlarge"), make_offer(instance="g5.xlarge")]
    usual = search(make_profile(), offers)
    assert "g5g.xlarge" not in {r.configuration.offer.instance for r in usual.rows}
    assert [d.count for d in usual.dropped if "arm64" in d.reason] == [1]
    asked = search(make_profile(), offers, architecture="arm64")
    assert {r.configuration.offer.instance for r in asked.rows} == {"g5g.xlarge"}
    with pytest.raises(BadInputError, match="sparc"):
        search(make_profile(), offers, architecture="sparc")


def test_the_start_of_machines_is_uncertain(make_profile: MakeProfile, make_offer: MakeOffer) -> None:
    profile = make_profile()
    table = OfferTable.from_offers([make_offer()])
    (row,) = recommend(profile, table, Request(), work(profile, samples=64)).rows
    assert row.time.value == pytest.approx(180, abs=10)
    assert row.time.low < 100
    assert row.time.high > 470


def test_energy_is_power_times_time_with_both_uncertainties(
    make_profile: MakeProfile, make_offer: MakeOffer
) -> None:
    result = search(make_profile(), [make_offer(), make_offer(instance="h", accelerator="H100")])
    for row in result.rows:
        assert row.energy is not None
        board = {"T4": 70.0, "H100": 700.0}[row.configuration.offer.accelerator or ""]
        watts = row.energy.value / row.time.value
        assert 0.15 * board < watts < board + 4 * 3.5 + 30
        assert row.energy.high / row.energy.value > row.time.high / row.time.value


def test_the_energy_objective_ranks_by_energy_and_leaves_out_unknown_power(
    make_profile: MakeProfile,
) -> None:
    rows = search(make_profile(), objective="energy", top=40).rows
    joules = [row.energy.value for row in rows if row.energy]
    assert len(joules) == len(rows)
    assert joules == sorted(joules)


def _decoder(width: int, layers: int, length: int, vocabulary: int = 32_000) -> Model:
    """Facts of a decoder-only language model with Adam, from its shape."""
    weights = layers * 12 * width**2 + vocabulary * width
    activations = 4.0 * length * width
    forward = 2.0 * length * weights
    operators = []
    for phase, factor in (("forward", 1.0), ("backward", 2.0)):
        for kind, calls, fixed, results in (
            ("matmul", 4.0 * layers, 4.0 * weights, 9.0 * layers),
            ("norm", 2.0 * layers + 1, 0.0, 2.0 * layers + 1),
            ("elementwise", 6.0 * layers, 0.0, 8.0 * layers),
        ):
            written = factor * results * activations
            operators.append(Operators(phase, kind, factor * calls, factor * fixed, 2 * written, written))
    return Model(
        parameters=weights,
        parameter_bytes=4.0 * weights,
        buffer_bytes=0.0,
        modules=12 * layers,
        layers=(),
        optimizer="AdamW",
        optimizer_state_bytes=8.0 * weights,
        precision="bf16",
        forward_flop_per_sample=forward,
        step_flop_per_sample=3 * forward,
        saved_fixed_bytes=0.0,
        saved_sample_bytes=17.0 * layers * activations,
        output_bytes_per_sample=4.0 * length * vocabulary,
        operators=tuple(operators),
    )


@pytest.fixture(scope="module")
def seven_billion() -> Model:
    return _decoder(4096, 32, 2048)


def test_a_model_larger_than_any_device_is_spread_without_being_asked(
    make_profile: MakeProfile, seven_billion: Model
) -> None:
    profile = replace(make_profile(batch_size=4), model=seven_billion)
    result = search(profile, accelerators=("A100",), top=40)
    spread = [row for row in result.rows if row.configuration.parallel.sharding == "full"]
    assert any(row.configuration.devices == 8 for row in spread)
    for row in result.rows:
        assert row.configuration.devices > 1
        assert row.memory <= row.memory_limit
        assert row.configuration.parallel.name


def test_a_large_model_is_spread_over_small_devices_also_where_a_larger_one_holds_it(
    make_profile: MakeProfile, make_offer: MakeOffer
) -> None:
    profile = replace(make_profile(batch_size=1), model=_decoder(2048, 24, 1024))
    offers = [
        make_offer(instance="one", accelerator="H200"),
        make_offer(instance="two", accelerator="H200", accelerators=2),
        make_offer(instance="small", accelerator="V100", accelerators=8),
    ]
    rows = search(profile, offers, top=500).rows
    assert {r.configuration.offer.instance for r in rows} == {"one", "two", "small"}
    for row in rows:
        assert bool(row.configuration.parallel.name) == (row.configuration.offer.instance == "small")


@pytest.mark.parametrize(
    ("ways", "expected"),
    [
        (("fsdp",), {"full"}),
        (("zero",), {"optimizer", "gradients"}),
        (("tensor",), {"none"}),
        (("data", "pipeline"), {"none"}),
    ],
)
def test_the_request_restricts_how_a_model_is_spread(
    make_profile: MakeProfile, seven_billion: Model, ways: tuple[str, ...], expected: set[str]
) -> None:
    profile = replace(make_profile(batch_size=8), model=seven_billion)
    rows = search(profile, accelerators=("H100", "H200"), parallel=ways, top=20).rows
    assert {row.configuration.parallel.sharding for row in rows} <= expected
    assert all(row.configuration.parallel.tensor == 1 or "tensor" in ways for row in rows)
    assert all(row.configuration.parallel.pipeline == 1 or "pipeline" in ways for row in rows)


def test_ways_that_need_several_devices_leave_out_single_ones(
    make_profile: MakeProfile, make_offer: MakeOffer
) -> None:
    offers = [make_offer(), make_offer(instance="eight", accelerators=8)]
    rows = search(make_profile(), offers, parallel=("fsdp",), max_nodes=1).rows
    assert [r.configuration.offer.instance for r in rows] == ["eight"]
    with pytest.raises(BadInputError, match="tensor"):
        search(make_profile(), offers, parallel=("tensor",), max_nodes=1)


def test_memory_savers_are_used_only_as_allowed(make_profile: MakeProfile, seven_billion: Model) -> None:
    profile = replace(make_profile(batch_size=4), model=seven_billion)
    alone = {"accelerators": ("H100",), "max_devices": 1, "max_nodes": 1}
    with pytest.raises(BadInputError, match="H100 memory"):
        search(profile, **alone)
    (row, *_) = search(profile, save_memory=("checkpointing", "lora"), **alone).rows
    assert row.configuration.parallel.adapter_rank > 0
    plain = search(profile, accelerators=("H100",), save_memory=(), top=40).rows
    assert not any(row.configuration.parallel.recompute for row in plain)


def test_an_unknown_way_to_spread_is_refused(make_profile: MakeProfile) -> None:
    with pytest.raises(BadInputError, match="magic"):
        search(make_profile(), parallel=("magic",))
    with pytest.raises(BadInputError, match="zip"):
        search(make_profile(), save_memory=("zip",))
