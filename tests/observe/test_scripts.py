"""Training scripts as people write them: each gives facts of its model and timed steps."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from trimtab.core import BadInputError, Model, OperatorCall, Profile, Steps
from trimtab.observe import FakeRunError, ProfilerSettings, profile, profile_by_threads, trace_model

pytest.importorskip("torch", reason="needs PyTorch")

SCRIPTS = Path(__file__).parent / "scripts"
MLP_FLOP = 2 * (32 * 64 + 64 * 4)


def run(name: str, fake: bool = False) -> Profile:
    settings = ProfilerSettings(window=120, every=0.5, steps=3, fake=fake)
    return profile((sys.executable, str(SCRIPTS / f"{name}.py")), settings)


def facts_of(found: Profile) -> tuple[Model, Steps]:
    assert found.model is not None
    assert found.steps is not None
    assert found.model.calls
    assert found.model.operators
    assert len(found.steps.seconds) >= 3
    assert found.model.peak_live_bytes > 0
    return found.model, found.steps


def rows(model: Model, kind: str, phase: str) -> Sequence[OperatorCall]:
    return [row for row in model.calls if row.kind == kind and row.phase == phase]


def test_adapters_train_a_part_of_the_parameters() -> None:
    model, _ = facts_of(run("adapters"))
    assert (model.parameters, model.trained_parameters) == (2 * (64 * 64 + 64 + 512), 1024)


def test_a_skipped_step_of_a_scaler_is_no_part_of_the_traced_one() -> None:
    model, steps = facts_of(run("scaler"))
    assert (steps.batch_size, model.micro_batches, model.precision) == (8, 1, "bf16")
    assert model.forward_flop_per_sample == MLP_FLOP
    assert {row.operator for row in model.calls if row.phase == "optimizer"} >= {"_fused_adamw_"}


def test_recurrent_layers_count_as_one_operator() -> None:
    model, _ = facts_of(run("recurrent"))
    layers = [2 * 20 * 4 * 32 * (width + 32) for width in (16, 32)]
    assert model.forward_flop_per_sample == sum(layers) + 2 * 20 * 32 * 50
    assert model.step_flop_per_sample == 3 * model.forward_flop_per_sample
    gates_and_cells = 4 * 20 * 32 * 5 * 2
    assert model.saved_sample_bytes > gates_and_cells


def test_graphs_are_samples_and_their_lookups_have_rows() -> None:
    model, steps = facts_of(run("graph"))
    assert (steps.batch_size, steps.loaded_samples) == (5, 5)
    assert steps.load_seconds is not None
    (gathered,) = rows(model, "gather", "forward")
    assert (gathered.sizes["rows"], gathered.sizes["elements"]) == (200, 200 * 32)
    assert model.peak_live_bytes > 2 * 4 * 200 * 32
    assert {row.operator for row in rows(model, "scatter", "forward")} == {"index_add"}


def test_a_round_of_two_optimizers_is_a_step() -> None:
    model, _ = facts_of(run("critic"))
    generator, critic = 2 * (8 * 32 + 32 * 16), 2 * (16 * 32 + 32)
    # Four calls of the generator and seven of the critic, each with ten samples.
    assert model.forward_flop_per_sample * model.traced_batch == 10 * (4 * generator + 7 * critic)


def test_steps_with_an_evaluation_do_not_count() -> None:
    model, steps = facts_of(run("evaluation"))
    assert (steps.batch_size, model.forward_flop_per_sample) == (8, MLP_FLOP)
    assert max(steps.seconds) < 0.3 or min(steps.seconds) < 0.3


def test_a_loop_without_modules_and_with_an_unused_optimizer_has_facts() -> None:
    model, _ = facts_of(run("custom_loop"))
    assert (model.parameters, model.optimizer) == (132, "RMSprop")
    assert model.forward_flop_per_sample * model.traced_batch == 2 * 8 * 32 * 4


def test_grouped_convolutions_have_right_flop_in_both_passes() -> None:
    model, _ = facts_of(run("channels_last"))
    dense, depthwise, pointwise = 2 * 256 * 16 * 27, 2 * 256 * 16 * 9, 2 * 256 * 32 * 16
    linear = 2 * 32 * 4
    assert model.forward_flop_per_sample == dense + depthwise + pointwise + linear
    # The first layer passes no gradient on to its input.
    assert model.step_flop_per_sample == 2 * dense + 3 * (depthwise + pointwise + linear)
    assert all(row.sizes["channels_last"] == 1 for row in rows(model, "conv", "forward"))
    assert 16 in {row.sizes["groups"] for row in rows(model, "conv", "backward")}


def test_distributed_data_parallel_in_one_process_has_facts() -> None:
    model, steps = facts_of(run("data_parallel"))
    assert (steps.workers, model.forward_flop_per_sample) == (1, MLP_FLOP)


def test_a_model_on_the_meta_device_has_facts_and_no_step_times() -> None:
    found = run("meta_device")
    assert found.model is not None
    assert found.steps is not None
    assert (found.steps.device, found.steps.seconds, found.steps.busy) == ("meta", (), None)
    assert found.series.memory == ()
    assert found.model.forward_flop_per_sample == 4 * 4096 * 40960
    assert {row.scales for row in rows(found.model, "matmul", "forward")} == {"m"}


def test_a_fake_run_ends_with_the_first_step_and_has_its_facts() -> None:
    found = run("finetune", fake=True)
    assert (found.status, found.ended) == (0, "exited")
    assert found.model is not None
    assert found.steps is not None
    assert found.model.parameters > 10e9
    assert found.model.optimizer_state_bytes > 8 * found.model.parameters
    assert (found.steps.batch_size, found.steps.seconds, found.steps.device) == (4, (), "meta")
    assert found.steps.dataset_length == 1000


def test_a_fake_run_that_needs_a_value_names_the_line() -> None:
    with pytest.raises(FakeRunError) as caught:
        run("needs_value", fake=True)
    line = (SCRIPTS / "needs_value.py").read_text().splitlines().index("    if output.mean() > 0:") + 1
    assert caught.value.stop.needs_value
    assert (Path(caught.value.stop.file).name, caught.value.stop.line) == ("needs_value.py", line)


def test_a_script_that_never_steps_is_told_which_event_was_missing() -> None:
    code = (
        "import torch; model = torch.nn.Linear(2, 2); made = torch.optim.SGD(model.parameters(), 0.1);"
        " model(torch.ones(1, 2)).sum().backward()"
    )
    found = profile((sys.executable, "-c", code), ProfilerSettings(window=60))
    assert (found.model, found.steps, found.status) == (None, None, 0)
    assert any("optimizer.step()" in note for note in found.notes)


def test_a_model_is_traced_in_this_process() -> None:
    from torch import nn

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))

    training, inference = trace_model(build, "8x32"), trace_model(build, "8x32", optimizer=None)
    assert (training.traced_batch, training.forward_flop_per_sample) == (8, MLP_FLOP)
    assert training.optimizer_state_bytes > 0
    assert {row.phase for row in inference.calls} == {"forward"}
    assert inference.forward_flop_per_sample == MLP_FLOP
    with pytest.raises((BadInputError, ValueError), match="8xmany"):
        trace_model(build, "8xmany")


def test_steps_are_measured_with_several_numbers_of_cpus(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, torch\n"
        "assert torch.get_num_threads() == len(os.sched_getaffinity(0)) == 1\n"
        "model = torch.nn.Linear(8, 8)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "while True:\n"
        "    model(torch.randn(4, 8)).sum().backward(); optimizer.step(); optimizer.zero_grad()\n"
    )
    settings = ProfilerSettings(window=60, every=0.5, steps=3)
    found = profile_by_threads((sys.executable, str(script)), [1], settings)
    assert found.steps is not None
    ((threads, seconds),) = ((entry.threads, entry.seconds) for entry in found.steps.by_threads)
    assert (threads, seconds) == (1, found.steps.seconds)


@pytest.mark.second_tier
@pytest.mark.parametrize(
    ("name", "samples", "micro_batches", "package"),
    [
        ("compiled", 8, 1, "torch"),
        ("fsdp2", 8, 1, "torch"),
        ("accelerate_loop", 24, 3, "accelerate"),
        ("lightning_module", 8, 1, "pytorch_lightning"),
        ("trainer", 8, 2, "transformers"),
    ],
)
def test_frameworks_give_facts(name: str, samples: int, micro_batches: int, package: str) -> None:
    pytest.importorskip(package)
    found = run(name)
    model, steps = facts_of(found)
    assert (steps.batch_size, model.micro_batches) == (samples, micro_batches)
    assert any("torch.compile" in note for note in found.notes) == (name == "compiled")
    assert rows(model, "matmul", "backward")
    assert model.step_flop_per_sample > 2 * model.forward_flop_per_sample


@pytest.mark.second_tier
@pytest.mark.parametrize("name", ["recurrent", "graph", "channels_last", "scaler", "trainer", "fsdp2"])
def test_a_fake_run_finds_the_facts_of_a_real_one(name: str) -> None:
    pytest.importorskip("transformers")
    real, fake = run(name).model, run(name, fake=True).model
    assert real is not None
    assert fake is not None

    def facts(model: Model) -> tuple[object, ...]:
        sizes = (model.parameters, model.trained_parameters, model.optimizer_state_bytes, model.precision)
        batch = (model.traced_batch, model.micro_batches, model.input_shape, model.output_shape)
        return (*sizes, *batch, model.forward_flop_per_sample, model.step_flop_per_sample)

    assert facts(fake) == facts(real)
    assert fake.saved_sample_bytes == pytest.approx(real.saved_sample_bytes, rel=0.02)
    if name != "fsdp2":  # which gathers weights in the real run
        assert fake.peak_live_bytes == pytest.approx(real.peak_live_bytes, rel=0.02)


@pytest.mark.second_tier
@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen3", "Gemma3", "Mixtral"])
def test_hugging_face_models_are_traced_without_numbers(family: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    name = "Gemma3TextConfig" if family == "Gemma3" else f"{family}Config"
    config = getattr(transformers, name)(vocab_size=100, num_key_value_heads=2, head_dim=16, **sizes)
    found = trace_model(
        lambda: getattr(transformers, f"{family}ForCausalLM")._from_config(config), "2x32:int64"
    )
    assert found.traced_batch == 2
    assert found.step_flop_per_sample > 2.5 * found.forward_flop_per_sample
    assert found.optimizer == "AdamW"
