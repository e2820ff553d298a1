"""Plans that run as processes lose what the whole model loses."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trimtab.core import BadInputError
from trimtab.partition import Plan, Recipe, RunReport, RunSettings, Stage, load_graph, run_plan
from trimtab.partition.run.processes import RunFailedError

TWO = RunSettings(steps=2, timeout=150.0)


def _check(report: RunReport, plan: Plan) -> None:
    assert report.equal
    assert report.difference <= 1e-5
    assert report.weights <= 1e-4
    assert len(report.losses) == len(report.whole_losses) == 2
    assert report.losses[0] != report.losses[1]
    assert len(report.ranks) == len(plan.stages) * plan.replicas * plan.tensor
    assert all(rank.forward > 0 and rank.backward > 0 and rank.memory >= 0 for rank in report.ranks)
    assert report.seconds > 0
    assert report.whole_forward > 0
    assert "dropout" in report.notes[0]


def test_a_pipeline_with_tied_weights_and_the_builders_own_batches_and_loss(
    target: Any, even_plan: Any, tmp_path: Path
) -> None:
    model = tmp_path / "words.py"
    source = Path(target("decoder").rpartition(":")[0]).read_text()
    model.write_text(
        source
        + """

def batch(samples, generator):
    words = torch.randint(0, WORDS, (samples, LENGTH + 1), generator=generator)
    return words[:, :-1].contiguous(), words[:, 1:].contiguous()


def loss(scores, targets):
    return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
"""
    )
    graph = load_graph(f"{model}:decoder")
    plan = even_plan(graph, 2, microbatches=4)
    report = run_plan(f"{model}:decoder", graph, plan, Recipe(plan.batch), TWO)
    _check(report, plan)
    assert report.losses[0] > 3.0


def test_skips_and_batch_norm_through_three_stages_recomputed(target: Any, even_plan: Any) -> None:
    graph = load_graph(target("skips"))
    plan = even_plan(graph, 3, microbatches=3, schedule="gpipe", recompute=True)
    _check(run_plan(target("skips"), graph, plan, Recipe(plan.batch, optimizer="sgd"), TWO), plan)


@pytest.mark.slow
def test_unequal_replicas_of_two_stages_that_shard_everything_in_any_order_of_devices(
    target: Any, even_plan: Any
) -> None:
    graph = load_graph(target("decoder"))
    plan = even_plan(graph, 2, shares=(1, 3), sharding="full", order=(3, 0, 2, 1))
    _check(run_plan(target("decoder"), graph, plan, Recipe(plan.batch), TWO), plan)


def test_replicas_alone_that_share_the_optimizers_state(target: Any, even_plan: Any) -> None:
    graph = load_graph(target("pair"))
    plan = even_plan(graph, 1, shares=(2, 1), sharding="optimizer")
    _check(run_plan(target("pair"), graph, plan, Recipe(plan.batch, optimizer="momentum"), TWO), plan)


def test_what_neither_exports_nor_is_a_row_is_refused(target: Any, even_plan: Any) -> None:
    graph = load_graph(target("undecided"))
    plan = even_plan(graph, 1)
    with pytest.raises(BadInputError, match=r"torch\.export"):
        run_plan(target("undecided"), graph, plan, Recipe(plan.batch), TWO)


def test_products_that_two_devices_share(target: Any, even_plan: Any) -> None:
    graph = load_graph(target("decoder"))
    plan = even_plan(graph, 1, tensor=2)
    _check(run_plan(target("decoder"), graph, plan, Recipe(plan.batch), TWO), plan)


def test_a_process_that_dies_is_named_and_leaves_nothing_behind(
    target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "dying.py"
    source = Path(target("rows").rpartition(":")[0]).read_text()
    model.write_text(
        f"{source}\n\nimport os\n\n\ndef loss(found, targets):\n"
        f"    if os.getpid() != {os.getpid()}:\n"
        "        raise ArithmeticError('the loss went wrong')\n"
        "    return found.square().mean()\n"
    )
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    graph = load_graph(f"{model}:undecided_rows")
    nodes, cut = tuple(range(len(graph))), graph.names.index("3")
    plan = Plan((Stage(nodes[:cut], ((0,),)), Stage(nodes[cut:], ((1,),))), (2,), 2)
    with pytest.raises(RunFailedError) as caught:
        run_plan(f"{model}:undecided_rows", graph, plan, Recipe(plan.batch), TWO)
    message = str(caught.value)
    assert message == "stage 1 of replica 0 (rank 1) failed: ArithmeticError: the loss went wrong"
    assert not list(tmp_path.glob("trimtab-*"))


@pytest.mark.parametrize(
    ("lost", "losses_alike", "weights_alike"),
    [("1.01 * lost", False, True), ("lost + 1000 * (lost - lost.detach())", True, False)],
    ids=["another loss", "other gradients"],
)
def test_processes_that_compute_something_else_are_not_called_equal(
    lost: str, losses_alike: bool, weights_alike: bool, target: Any, even_plan: Any, tmp_path: Path
) -> None:
    model = tmp_path / "differing.py"
    source = Path(target("rows").rpartition(":")[0]).read_text()
    model.write_text(
        f"{source}\n\nimport os\n\n\ndef loss(found, targets):\n"
        "    lost = found.square().mean()\n"
        f"    return lost if os.getpid() == {os.getpid()} else {lost}\n"
    )
    graph = load_graph(f"{model}:rows")
    plan = even_plan(graph, 1)
    recipe = Recipe(plan.batch, optimizer="sgd")
    report = run_plan(f"{model}:rows", graph, plan, recipe, RunSettings(steps=1, timeout=150.0))
    assert (report.difference <= 1e-5, report.weights <= 1e-4) == (losses_alike, weights_alike)
    assert not report.equal


def test_a_step_that_raises_on_the_whole_model_is_one_sentence(
    target: Any, even_plan: Any, tmp_path: Path
) -> None:
    model = tmp_path / "raising.py"
    source = Path(target("rows").rpartition(":")[0]).read_text()
    model.write_text(f"{source}\n\ndef loss(found, targets):\n    return found + targets\n")
    graph = load_graph(f"{model}:rows")
    plan = even_plan(graph, 1)
    with pytest.raises(BadInputError, match="TypeError: "):
        run_plan(f"{model}:rows", graph, plan, Recipe(plan.batch), TWO)


def test_a_plan_of_another_model_is_refused(target: Any, even_plan: Any) -> None:
    graph = load_graph(target("rows(layers=2)"))
    plan = even_plan(graph, 2)
    with pytest.raises(BadInputError, match="another model"):
        run_plan(target("rows"), graph, plan, Recipe(plan.batch), TWO)


def test_a_device_that_runs_two_stages_is_refused(target: Any) -> None:
    graph = load_graph(target("rows"))
    nodes = tuple(range(len(graph)))
    plan = Plan((Stage(nodes[:3], ((0,),)), Stage(nodes[3:], ((0,),))), (2,), 1)
    with pytest.raises(BadInputError, match=r"device 0 .*0 and 1"):
        run_plan(target("rows"), graph, plan, Recipe(plan.batch), TWO)


def test_inference_is_not_run(target: Any, even_plan: Any) -> None:
    graph = load_graph(target("rows"))
    with pytest.raises(BadInputError, match="--run"):
        run_plan(target("rows"), graph, even_plan(graph, 1), Recipe(4, training=False))
    with pytest.raises(BadInputError, match="0 steps"):
        RunSettings(steps=0)


def test_a_model_that_is_too_large_for_this_machine_is_not_even_built(
    make_graph: Any, even_plan: Any
) -> None:
    graph = make_graph()
    huge = replace(graph, parameters=graph.parameters * 1e9)
    with pytest.raises(BadInputError, match="--torchrun"):
        run_plan("nowhere.py:build", huge, even_plan(huge, 2), Recipe(4), RunSettings())


def test_so_are_more_processes_than_memory_is_for(make_graph: Any, even_plan: Any) -> None:
    graph = make_graph()
    with pytest.raises(BadInputError, match="2000"):
        run_plan("nowhere.py:build", graph, even_plan(graph, 1, shares=(1,) * 2000), Recipe(4000))
