from operator import ge, le, lt

from trimtab_bench.harness import Goal, goals_table, judged


def test_a_goal_is_met_on_its_own_side_alone() -> None:
    found = judged(
        [
            Goal("at the most", 2.0, le, 2.0),
            Goal("more than the most", 2.1, le, 2.0),
            Goal("at the least", 2.0, ge, 2.0),
            Goal("less than the least", 1.9, ge, 2.0),
            Goal("below", 1.9, lt, 2.0),
            Goal("not below", 2.0, lt, 2.0),
        ]
    )
    assert [each["met"] for each in found.values()] == [True, False, True, False, True, False]
    assert found["below"] == {"value": 1.9, "wanted": "less than 2", "met": True}


def test_goals_are_shown_with_what_is_wanted_of_them() -> None:
    table = goals_table(judged([Goal("rounds per second", 234567.0, ge, 2e5)]), "Goals")
    assert table.title == "Goals"
    assert table.rows == (("rounds per second", "234,567.000", "at least 200000", "yes"),)
