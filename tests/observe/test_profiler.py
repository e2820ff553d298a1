"""Real commands under watch, most of them training with PyTorch."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trimtab.core import Profile
from trimtab.kernel import Owner, environment, processes
from trimtab.observe import CommandError, ProfilerSettings, name_of, profile
from trimtab.observe.listening import FOLDER_VARIABLE

pytest.importorskip("torch", reason="needs PyTorch")
import scripts

Profiler = Callable[..., Profile]
SAVED = 4 * (32 + 64 + 4) + 8


@pytest.fixture
def profiled(tmp_path: Path) -> Profiler:
    def run(script: str, *arguments: str, launcher: tuple[str, ...] = (), steps: int = 5) -> Profile:
        path = tmp_path / "train.py"
        path.write_text(script)
        command = (*(launcher or (sys.executable,)), str(path), *arguments)
        found = profile(command, ProfilerSettings(window=60, every=0.2, steps=steps))
        assert left_behind() == []
        return found

    return run


def left_behind() -> list[int]:
    """Processes that still carry the mark of a run of ours."""
    marks = ((p.pid, environment(p.pid).get(FOLDER_VARIABLE, "")) for p in processes() if not p.zombie)
    return [pid for pid, folder in marks if Owner.of(os.path.basename(folder)) == Owner.current()]


def test_a_plain_loop_shows_model_steps_and_plan(profiled: Profiler) -> None:
    found = profiled(scripts.PLAIN, "--epochs", "9")
    model, steps = found.model, found.steps
    assert model is not None
    assert steps is not None
    assert (model.parameters, model.parameter_bytes, model.modules) == (2372, 4 * 2372, 4)
    assert [(layer.type, layer.parameters) for layer in model.layers] == [
        ("Linear", 2112),
        ("ReLU", 0),
        ("Linear", 260),
    ]
    assert (model.optimizer, model.optimizer_state_bytes, model.precision) == ("SGD", 4 * 2372, "fp32")
    assert (model.input_shape, model.output_shape) == ((32,), (4,))
    assert (model.input_bytes_per_sample, model.output_bytes_per_sample) == (128, 16)
    # Two layers of 32×64 and 64×4 multiply-adds; the first passes no gradient on to its input.
    assert model.forward_flop_per_sample == 2 * (32 * 64 + 64 * 4)
    assert model.step_flop_per_sample == 2 * (2 * 32 * 64 + 3 * 64 * 4)
    assert len(steps.seconds) >= 5
    assert (steps.batch_size, steps.workers, steps.device) == (16, 1, "cpu")
    assert (steps.dataset_length, steps.epochs, steps.total_steps) == (4000, 9, None)
    assert steps.input_wait > 0
    assert found.ended == "interrupted"
    assert len(found.series.cpu) == len(found.series.time) > 0
    assert max(found.series.memory) > 50e6


def test_operators_are_linear_in_the_batch(profiled: Profiler) -> None:
    model = profiled(scripts.PLAIN).model
    assert model is not None
    found = {(o.phase, o.kind): o for o in model.operators}
    forward = found["forward", "matmul"]
    assert forward.calls == 2
    assert forward.fixed_bytes == 4 * 2372
    assert forward.sample_bytes == 4 * (32 + 64 + 64 + 4)
    assert forward.written_sample_bytes == 4 * (64 + 4)
    backward = found["backward", "matmul"]
    assert backward.calls == 3
    assert backward.fixed_bytes == 4 * (32 * 64 + 2 * 64 * 4)
    assert found["optimizer", "elementwise"].sample_bytes == 0
    # Saved: both layers' inputs, the logarithms and the labels; what is kept twice takes its memory once.
    assert model.saved_sample_bytes == pytest.approx(SAVED, abs=1)


def test_accumulated_gradients_add_up_and_loader_workers_are_seen(profiled: Profiler) -> None:
    found = profiled(scripts.PLAIN, "--accumulate", "4", "--workers", "1")
    assert found.steps is not None
    assert found.steps.batch_size == 64
    assert found.steps.loader_workers == 1
    assert found.model is not None
    assert found.model.saved_sample_bytes == pytest.approx(SAVED, abs=1)
    assert found.steps.workers == 1
    assert found.model.forward_flop_per_sample == 2 * (32 * 64 + 64 * 4)


def test_two_optimizers_that_take_turns_are_one_step(profiled: Profiler) -> None:
    found = profiled(scripts.ADVERSARIAL)
    assert found.model is not None
    assert found.steps is not None
    assert found.model.parameters == (8 * 32 + 32 + 32 * 16 + 16) + (16 * 32 + 32 + 32 + 1)
    assert found.model.optimizer == "Adam"
    assert found.steps.batch_size == 10
    assert found.steps.dataset_length == 1000


def test_torchrun_reports_its_first_worker_and_leaves_none_behind(profiled: Profiler) -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    found = profiled(scripts.DISTRIBUTED, launcher=launcher)
    assert found.model is not None
    assert found.steps is not None
    assert (found.steps.workers, found.steps.batch_size) == (2, 6)
    assert (found.model.parameters, found.model.modules) == (84, 1)


def test_an_unusual_model_is_understood_and_not_disturbed(profiled: Profiler) -> None:
    found = profiled(scripts.UNUSUAL)
    assert found.model is not None
    assert found.steps is not None
    assert found.steps.batch_size == 5
    assert found.model.input_shape == (35, 8)
    assert found.model.output_shape == (35, 2)
    assert found.model.optimizer == "AdamW"
    # Function transforms forbid the hooks a trace needs: it steps aside and says so.
    assert any("torch.func" in note for note in found.notes)
    assert found.model.operators == ()
    assert len(found.steps.seconds) >= 5


def test_a_script_without_torch_still_gives_a_series(tmp_path: Path) -> None:
    path = tmp_path / "busy.sh"
    path.write_text(f"{sys.executable} -c 'while True: sum(range(10000))' & wait\n")
    found = profile(("sh", str(path)), ProfilerSettings(window=1.5, every=0.25))
    assert (found.model, found.steps) == (None, None)
    assert found.workload.name == "busy"
    assert max(found.series.cpu) > 0.1
    assert any("PyTorch optimizer step" in note for note in found.notes)
    assert left_behind() == []


def test_without_control_groups_processes_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.observe.run.Group", scripts.NoGroups)
    script = "setsid sh -c 'while :; do :; done' & wait"
    found = profile(("sh", "-c", script), ProfilerSettings(window=1.0, every=0.25))
    assert found.method == "process-tree"
    assert max(found.series.cpu) > 0.1
    assert any("followed from parent to child" in note for note in found.notes)
    assert left_behind() == []


def test_a_command_that_fails_keeps_its_status_and_gets_a_note() -> None:
    found = profile(("sh", "-c", "exit 3"), ProfilerSettings(window=5))
    assert (found.status, found.ended) == (3, "exited")
    assert any("status 3" in note for note in found.notes)


def test_a_command_that_does_not_exist_has_the_shells_status() -> None:
    with pytest.raises(CommandError, match="no-such-program") as caught:
        profile(("no-such-program",))
    assert caught.value.exit_status == 127


def test_a_file_that_is_not_a_program_has_the_shells_status(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("x")
    with pytest.raises(CommandError, match="notes") as caught:
        profile((str(tmp_path / "notes"),))
    assert caught.value.exit_status == 126


def test_the_users_own_startup_file_and_path_still_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos.environ['MINE'] = 'ran'\n")
    (tmp_path / "mine.py").write_text("answer = 42\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    check = "import os, mine, sitecustomize; assert os.environ['MINE'] == 'ran' and mine.answer == 42"
    found = profile((sys.executable, "-c", check), ProfilerSettings(window=10))
    assert (found.status, found.ended) == (0, "exited")


def test_a_listener_that_cannot_write_does_not_break_the_script(tmp_path: Path) -> None:
    script = (
        "import os, shutil, torch\n"
        f"shutil.rmtree(os.environ['{FOLDER_VARIABLE}'])\n"
        "p = torch.nn.Parameter(torch.ones(3))\n"
        "o = torch.optim.SGD([p], lr=0.1)\n"
        "for i in range(9):\n    (p * p).sum().backward(); o.step(); o.zero_grad()\n"
        "assert p[0] < 1\n"
    )
    found = profile((sys.executable, "-c", script), ProfilerSettings(window=30))
    assert (found.status, found.ended, found.model) == (0, "exited", None)


def test_names_come_from_the_script_or_module() -> None:
    assert name_of(("python", "-m", "pkg.train")) == "train"
    assert name_of(("python", "/a/train.py", "--x")) == "train"
    assert name_of((f"{os.sep}bin{os.sep}true",)) == "true"
