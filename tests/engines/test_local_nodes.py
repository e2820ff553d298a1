"""This machine as a node, and as several that it pretends to be."""

import os

import pytest

from trimtab.core import BadInputError, Node
from trimtab.engines.local.nodes import nodes_at


def test_this_machine_is_one_node_called_local() -> None:
    (node,) = nodes_at("")
    assert node.name == "local"
    assert 0 < node.cpus <= (os.cpu_count() or 1)
    assert node.memory > 2**20
    assert bool(node.accelerator) == bool(node.gpus)


def test_a_machine_can_pretend_to_be_several() -> None:
    assert nodes_at("?nodes=2&cpus=2.5&memory=4GiB&gpus=4&accelerator=t4") == (
        Node("local-1", 2.5, 2.0**32, "t4", 4),
        Node("local-2", 2.5, 2.0**32, "t4", 4),
    )


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("here", 'after local:// comes nothing, or .* not "here"'),
        ("?node=3", r'there is no "node" here \(did you mean nodes\?\)'),
        ("?nodes=0", 'nodes= takes a whole number from 1 to 10000, not "0"'),
        ("?nodes=three", "nodes= takes a whole number"),
        ("?cpus=-1", 'cpus= takes a number above 0, not "-1"'),
        ("?cpus=nan", "cpus= takes a number above 0"),
        ("?memory=0", "memory= takes a size such as 4GiB"),
        ("?memory=much", '"much"'),
    ],
)
def test_what_cannot_be_pretended_is_refused(address: str, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        nodes_at(address)
