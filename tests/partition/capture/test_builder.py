"""A user's function becomes a model without memory, or one sentence that says why not."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="builders build PyTorch models")

from trimtab.core import TrimtabError  # noqa: E402
from trimtab.partition import load_target  # noqa: E402
from trimtab.partition.capture.builder import load_builder, resized  # noqa: E402

BUILDERS = """
import torch
from dataclasses import dataclass
from torch import nn
from neighbour import WIDTH

@dataclass
class Options:
    layers: int = 2

def build(layers=2, width=WIDTH):
    options = Options(layers)
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(options.layers)))
    return model, torch.randn(4, width)

def huge():
    return nn.Linear(1_000_000, 1_000_000), torch.randn(1, 1_000_000)

def reads_values():
    rates = [rate.item() for rate in torch.linspace(0, 0.5, 3)]
    return nn.Sequential(nn.Linear(8, 8), *map(nn.Dropout, rates)), torch.randn(2, 8)

def huge_that_reads_values():
    rates = torch.linspace(0, 0.5, 3).tolist()
    return nn.Sequential(nn.Linear(1_000_000, 1_000_000), nn.Dropout(rates[1])), torch.randn(1, 1_000_000)

def huge_that_reads_weights():
    layer = nn.Linear(100_000, 100_000)
    layer.weight.sum().item()
    return layer, torch.randn(1, 100_000)

def draws_a_number():
    return nn.Linear(8, 2 + int(torch.rand(1).item() < 2)), torch.randn(2, 8)

def names_no_device():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.places = nn.Embedding(8, 4)
        def forward(self, x):
            return x + self.places(torch.arange(8)) + torch.zeros(8, 4, device="cpu")
    return Positions(), torch.randn(2, 8, 4)

def without_inputs(): return nn.Linear(8, 8)
def nothing(): return None
def raises(): raise ValueError("no such\\nconfiguration")
def leaves(): raise SystemExit(3)
number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("WIDTH = 16\n", encoding="utf-8")
    path = tmp_path / "mymodel.py"
    path.write_text(BUILDERS, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("call", "parameters"),
    [
        ("build", 2 * (16 * 16 + 16)),
        ("build()", 2 * (16 * 16 + 16)),
        ("build(layers=3)", 3 * (16 * 16 + 16)),
        ("build(1, width=4)", 4 * 4 + 4),
        ("huge", 1e12 + 1e6),
        ("reads_values", 8 * 8 + 8),
        ("huge_that_reads_values", 1e12 + 1e6),
        ("draws_a_number", 8 * 3 + 3),
        ("names_no_device", 8 * 4),
    ],
)
def test_a_builder_is_called_and_captured(file: Path, call: str, parameters: float) -> None:
    result = load_target(f"{file}:{call}")
    assert result.how == "export"
    assert result.graph.total_parameters == parameters


def test_what_is_built_has_no_memory_unless_it_is_wanted(file: Path) -> None:
    built, real = load_builder(f"{file}:build"), load_builder(f"{file}:build", real=True)
    assert all(weight.is_meta for weight in built.model.parameters())
    assert built.inputs.is_meta
    assert built.name == "mymodel"
    assert not any(weight.is_meta for weight in real.model.parameters())
    assert torch.isfinite(real.model(real.inputs)).all()


def test_a_builder_may_stand_in_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_of_test").mkdir()
    code = "import torch\ndef tiny(): return torch.nn.Linear(2, 2), torch.randn(1, 2)\nbuild = tiny\n"
    (tmp_path / "mine_of_test" / "nets.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_builder("mine_of_test.nets:tiny").name == "tiny"
    assert load_builder("mine_of_test.nets:build").name == "nets"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("mymodel.py", r'"mymodel.py"'),
        ("{file}:bild", r'"bild".*build'),
        ("{file}:number", r'"number"'),
        ("{file}.py:build", r"\.py\.py"),
        ("no.such.package:build", r"no.such.package .*ModuleNotFoundError"),
        ("{file}:build(layers=x)", r"layers=x"),
        ("{file}:build(**{{}})", r"\*\*"),
        ("{file}:build(depth=3)", r"TypeError: .*depth"),
        ("{file}:huge_that_reads_weights", r"RuntimeError: .*allocate memory"),
        ("{file}:raises", r"ValueError: no such configuration$"),
        ("{file}:leaves", r"SystemExit: 3"),
        ("{file}:nothing", r"NoneType.*\(model, inputs\)"),
        ("{file}:without_inputs", r"without_inputs.*\(model, inputs\)"),
    ],
)
def test_errors_are_one_sentence(file: Path, target: str, message: str) -> None:
    with pytest.raises(TrimtabError, match=message) as error:
        load_builder(target.format(file=file))
    assert "\n" not in str(error.value)


def test_a_file_that_does_not_compile_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("def build(:\n", encoding="utf-8")
    with pytest.raises(TrimtabError, match=r"broken\.py cannot be imported: SyntaxError"):
        load_builder(f"{path}:build")


def test_inputs_are_repeated_or_cut_to_another_batch() -> None:
    inputs = (torch.arange(3), {"mask": torch.zeros(3, 2), "scale": torch.ones(5)})
    larger, named = resized(inputs, 5)
    assert larger.tolist() == [0, 1, 2, 0, 1]
    assert named["mask"].shape == (5, 2)
    assert named["scale"].shape == (5,)
    assert resized(torch.arange(3), 1).tolist() == [0]
