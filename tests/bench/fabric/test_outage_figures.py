"""Outages in figures: nobody's repeats are left out, and what was cut off says so."""

from made_up_outages import outages, repeat
from trimtab_bench.fabric.outages import FAULTS, VARIANTS, figures, tables


def test_medians_and_worst_are_of_all_repeats_and_by_place() -> None:
    found = outages()
    found["outages", "ours", "blackhole"] = {
        "repeats": [repeat(10), repeat(30, "receiver"), repeat(14), repeat(0, "receiver")],
        "missed": 2,
        "labs": 1,
    }
    told = figures(found)["outage_ms"]["ours"]["blackhole"]
    assert (told["p50"], told["max"], told["n"]) == (12, 30, 4)
    assert (told["sender"], told["receiver"]) == (12, 15)
    assert (told["unharmed"], told["missed"], told["cut_off"]) == (1, 2, 0)


def test_there_is_a_figure_for_every_variant_and_fault() -> None:
    told = figures(outages())["outage_ms"]
    assert {variant: set(by_fault) for variant, by_fault in told.items()} == {
        variant: set(FAULTS) for variant in VARIANTS
    }


def test_silent_faults_and_links_that_go_down_are_judged_apart() -> None:
    found = outages(20.0)
    found["outages", "ours", "carrier-loss"] = {"repeats": [repeat(7)], "missed": 0, "labs": 1}
    found["outages", "ours", "link-down"] = {"repeats": [repeat(3)], "missed": 0, "labs": 1}
    found["outages", "frr", "link-down"] = {"repeats": [repeat(90)], "missed": 0, "labs": 1}
    told = figures(found)
    assert told["link_down_outage_ms"] == {"p50": 5, "max": 7, "n": 2}
    assert told["silent_outage_ms"] == {"p50": 21, "max": 22, "n": 8}


def test_the_longest_pause_of_the_machine_is_told_and_excuses_nothing() -> None:
    found = outages()
    found["outages", "ours", "blackhole"] = {
        "repeats": [repeat(20), repeat(80, pause_ms=55.0)],
        "missed": 0,
        "labs": 1,
    }
    told = figures(found)
    assert told["pauses_ms"] == told["outage_ms"]["ours"]["blackhole"]["pauses_ms"] == 55.0
    assert told["silent_outage_ms"]["max"] == 80


def test_an_outage_that_was_not_over_is_marked_in_the_table() -> None:
    found = outages()
    for fault in FAULTS:
        found["outages", "single_port", fault] = {
            "repeats": [repeat(601), repeat(600.5)],
            "missed": 0,
            "labs": 1,
        }
    found["outages", "frr", "link-down"] = {
        "repeats": [repeat(50), repeat(60), repeat(601)],
        "missed": 0,
        "labs": 3,
    }
    compared, by_place = tables(found)
    row = dict(zip(compared.columns, compared.rows[FAULTS.index("link-down")], strict=True))
    assert row == {
        "fault": "link-down",
        "ours": "21.0, 22.0",
        "frr": "60.0, >601.0",
        "frr_50ms": "21.0, 22.0",
        "single_port": ">600.8, >601.0",
    }
    assert [row[0] for row in by_place.rows] == list(FAULTS)
