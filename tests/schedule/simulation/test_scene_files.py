"""Clusters and quotas as people write them down, and what is said where they cannot be used."""

from pathlib import Path

import pytest

from trimtab.core import BadInputError
from trimtab.schedule import Group, Market
from trimtab.schedule.simulation.scene import read_cluster, read_quotas


def write(folder: Path, text: str) -> Path:
    path = folder / "file.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_groups_have_what_is_told_and_the_usual_for_the_rest(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
groups:
  - {name: fast, accelerator: A100, nodes: 2, gpus: 8, cpus: 96, memory: 1TB, price: $36/h,
     market: spot, reclaims: 0.05/h, zone: aws/us-east-1/a}
  - {accelerator: t4, nodes: 3, gpus: 4}
  - {name: cpu, nodes: 5, cpus: 32, memory: 128GB, market: reserved}
""",
    )
    fast, usual, plain = read_cluster(path)
    assert fast == Group(
        "fast", "a100", 2, 8, 96, 1e12, 0.01, Market.SPOT, pytest.approx(0.05 / 3600), "aws/us-east-1/a"
    )
    assert usual == Group("t4", "t4", 3, 4, 32, 256e9)
    assert plain == Group("cpu", "", 5, 0, 32, 128e9, market=Market.RESERVED)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "file.yaml is None; .*groups"),
        ("groups: []", r"groups is \[\]"),
        ("group: [{}]", "did you mean groups"),
        ("groups: [{accelerator: a100, node: 2}]", r"groups\[0\].*did you mean nodes"),
        ("groups: [{gpus: 2}]", r"groups\[0\] is .*; accelerator is missing"),
        ("groups: [{nodes: 2}]", "cpus is missing; nodes without accelerators need cpus and memory"),
        ("groups: [{accelerator: a100, nodes: 0}]", r"groups\[0\].nodes is 0"),
        ("groups: [{accelerator: a100, price: dear}]", r"price is 'dear'; .*\$3\.20/h"),
        ("groups: [{accelerator: a100, market: sport}]", "did you mean spot"),
        ("groups: [{accelerator: a100, reclaims: 1/h}]", "add market: spot"),
        ("groups: [{accelerator: a100, market: spot, reclaims: often}]", "such as 0.05/h"),
        ("groups: [{accelerator: t4}, {accelerator: t4}]", "two groups are called t4"),
        ("groups: [{accelerator: t4, zone: [1]}]", r"zone is \[1\]"),
        ("groups: {", "cannot be read as YAML"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence) as caught:
        read_cluster(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"there is no file .*none\.yaml"):
        read_cluster(tmp_path / "none.yaml")


def test_quotas_are_tenants_in_a_tree(tmp_path: Path) -> None:
    text = (
        "tenants: [{name: lab, guarantee: 8}, {name: vision, parent: lab, guarantee: 4, limit: 6, weight: 2}]"
    )
    quotas = read_quotas(write(tmp_path, text))
    assert [tenant.name for tenant in quotas.line("vision")] == ["vision", "lab"]
    assert (quotas.tenants["vision"].limit, quotas.tenants["vision"].weight) == (6.0, 2.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tenants: [{name: a, parent: b}, {name: b, parent: a}]", "tenants are in a circle"),
        ("tenants: [{name: a, guarantee: much}]", "guarantee is 'much'; it should be a number"),
        ("tenants: [{name: a, guarantee: -1}]", "a guarantee is 0 or more"),
        ("tenants: [{name: a, garantee: 1}]", "did you mean guarantee"),
    ],
)
def test_quotas_that_cannot_be_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        read_quotas(write(tmp_path, text))
