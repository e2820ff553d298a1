"""What a fleet can never run is said with what it could."""

import pytest

from trimtab.core import BadInputError, Node
from trimtab.schedule import Fleet, impossible, parse_jobs, refuse_impossible
from trimtab.schedule.job import Job

GIB = 2.0**30
FLEET = Fleet.of(
    [Node(f"a{n}", 64.0, 512 * GIB, "A100", 8) for n in range(2)]
    + [Node(f"t{n}", 16.0, 64 * GIB, "Tesla T4", 4) for n in range(6)]
    + [Node("c", 8.0, 32 * GIB)]
)


def job(text: str) -> Job:
    (found,) = parse_jobs(f"name: big\ncommand: 'true'\n{text}", "job.yaml")
    return found.job


@pytest.mark.parametrize(
    "text",
    [
        "resources: {gpus: 16, accelerators: a100}",
        "resources: {gpus: 24}",
        "resources: {gpus: 4..640, accelerators: [a100, t4]}",
        "resources: {share: 0.25}\nworkers: 96",
        "resources: {gpus: 16}\nworkers: 2",
        "workers: 8",
        "resources: {cpus: 64}",
    ],
)
def test_what_fits_on_empty_nodes_is_possible(text: str) -> None:
    assert impossible(job(text), FLEET.groups) is None
    refuse_impossible(job(text), FLEET.groups)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "resources: {gpus: 64, accelerators: a100}",
            "64 a100 asked; the largest this fleet can give is 16 a100, or 24 t4",
        ),
        (
            "resources: {gpus: 25}",
            "25 accelerators asked; the largest this fleet can give is 16 a100, or 24 t4",
        ),
        (
            "resources: {gpus: 2, accelerators: h100}",
            "2 h100 asked; the largest this fleet can give is 16 a100, or 24 t4",
        ),
        (
            "resources: {gpus: 5, cpus: 32}",
            "5 accelerators asked; the largest this fleet can give is 4 a100",
        ),
        (
            "resources: {gpus: 9, accelerators: a100}\nworkers: 1",
            "a worker with 9 accelerators, 1 CPU asked; a node here has",
        ),
        ("resources: {gpus: 1, memory: 4TiB}", "a worker with 1 accelerator, 1 CPU and 4 TiB asked"),
        (
            "resources: {cpus: 100}",
            "a worker with 100 CPUs asked; a node here has 8 CPUs and 32 GiB, or 8 a100",
        ),
        ("workers: 1000", "1000 workers with 1 CPU each asked; the largest this fleet can give is 128"),
    ],
)
def test_what_does_not_fit_is_said_with_what_would(text: str, sentence: str) -> None:
    said = impossible(job(text), FLEET.groups)
    assert said is not None
    assert said.startswith(sentence)
    with pytest.raises(BadInputError, match='the job "big" is impossible here: '):
        refuse_impossible(job(text), FLEET.groups)


def test_without_nodes_nothing_is_possible() -> None:
    assert impossible(job(""), ()) == "no nodes are known"
