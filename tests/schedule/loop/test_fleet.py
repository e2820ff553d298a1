"""An engine's nodes as groups of equal ones."""

from trimtab.core import Node
from trimtab.schedule import Fleet


def test_nodes_that_are_alike_are_a_group_under_the_catalogs_name() -> None:
    fleet = Fleet.of(
        [Node(f"a{n}", 64.0, 2.0**39, "A100", 8) for n in range(2)]
        + [Node(f"t{n}", 16.0, 2.0**36, "Tesla T4", 4) for n in range(6)]
        + [Node("c", 8.0, 2.0**35)]
    )
    assert [(g.name, g.accelerator, g.nodes) for g in fleet.groups] == [
        ("cpu", "", 1),
        ("8xa100", "a100", 2),
        ("4xt4", "t4", 6),
    ]
    assert fleet.places["t3"] == (2, 3)


def test_the_same_nodes_in_two_sizes_have_names_of_their_own() -> None:
    fleet = Fleet.of([Node("a", 1.0, 1.0), Node("b", 2.0, 1.0), Node("c", 2.0, 1.0, zone="west")])
    assert [group.name for group in fleet.groups] == ["cpu", "cpu.2", "cpu@west"]
