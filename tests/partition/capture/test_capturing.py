"""A model becomes a graph that says what PyTorch itself says, and needs none of its memory."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="capturing a model needs PyTorch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402
from trimtab_bench.partition.models import (  # noqa: E402
    BertEncoder,
    Bottleneck,
    ConvNorm,
    GptDecoder,
    TransformerShape,
    UNet,
)

from trimtab.core import BadInputError  # noqa: E402
from trimtab.partition import Graph, capture_model  # noqa: E402
from trimtab.partition.capture.capturing import Captured  # noqa: E402

SMALL = TransformerShape(layers=2, width=64, heads=4, length=32, vocabulary=100)
WORDS = torch.zeros(2, 32, dtype=torch.long)
PICTURES = torch.randn(2, 3, 32, 32)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer, self.head = nn.Embedding(50, 16), nn.GRU(16, 24), nn.Linear(24, 50)

    def forward(self, words: Any) -> Any:
        return self.head(self.layer(self.words(words))[0])


def residual() -> nn.Module:
    return nn.Sequential(ConvNorm(3, 8, 3, 2, 1), Bottleneck(8, 4, 1), nn.AvgPool2d(2), nn.Conv2d(16, 4, 1))


def various() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.SiLU(), nn.MaxPool2d(2), nn.GroupNorm(2, 8), nn.Sigmoid(), nn.Flatten(),
        nn.Linear(8 * 15 * 15, 20), nn.Tanh(), nn.Linear(20, 5), nn.Softmax(-1),
    )  # fmt: skip


CASES = {
    "decoder": (lambda: GptDecoder(SMALL), (WORDS,)),
    "experts": (lambda: GptDecoder(SMALL, experts=4), (WORDS,)),
    "encoder": (lambda: BertEncoder(SMALL), (WORDS, WORDS)),
    "skips": (lambda: UNet((8, 16), 2), (PICTURES,)),
    "residual": (residual, (PICTURES,)),
    "various": (various, (PICTURES,)),
    "recurrent": (Recurrent, (WORDS,)),
    "torch": (
        lambda: nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True),
        (torch.randn(2, 64, 32),),
    ),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, tuple[Any, ...], Captured]:
    build, inputs = CASES[request.param]
    model = build()
    return model, inputs, capture_model(model, inputs, request.param)


def captured(model: nn.Module, *inputs: Any) -> Graph:
    return capture_model(model, inputs, "model").graph


def saved_for_real(model: nn.Module, inputs: tuple[Any, ...]) -> int:
    """Bytes that autograd keeps in a run on the CPU, each piece of memory once, without weights."""
    weights = {t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers())}
    kept: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(*inputs)
    return sum(storage.nbytes() for key, storage in kept.items() if key not in weights)


def needs(graph: Graph, node: str) -> set[str]:
    sources, targets, _ = graph.edges
    return {graph.names[s] for s in sources[targets == graph.names.index(node)]}


def test_arithmetic_is_what_pytorch_counts(case: tuple[nn.Module, tuple[Any, ...], Captured]) -> None:
    model, inputs, found = case
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(*inputs)
    assert found.graph.flop.sum() * found.batch == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_what_is_kept_for_the_backward_pass_is_what_autograd_keeps(
    case: tuple[nn.Module, tuple[Any, ...], Captured],
) -> None:
    model, inputs, found = case
    assert found.graph.saved.sum() * found.batch == pytest.approx(saved_for_real(model, inputs), rel=0.15)


def test_every_weight_is_counted_once(case: tuple[nn.Module, tuple[Any, ...], Captured]) -> None:
    model, _, found = case
    assert found.graph.total_parameters == sum(weight.numel() for weight in model.parameters())
    assert found.graph.buffers.sum() == sum(b.numel() * b.element_size() for b in model.buffers())


def test_every_traced_operation_belongs_to_one_node(
    case: tuple[nn.Module, tuple[Any, ...], Captured],
) -> None:
    _, inputs, found = case
    assert found.how == "export"
    assert found.note == ""
    assert found.program is not None
    weights = {*found.program.graph_signature.inputs_to_parameters}
    weights |= {*found.program.graph_signature.inputs_to_buffers}
    weights |= {*found.program.graph_signature.inputs_to_lifted_tensor_constants}
    traced = [n.name for n in found.program.graph.nodes if n.name not in weights and n.op != "get_attr"]
    members = [name for names in found.members for name in names]
    assert sorted(members) == sorted(traced)
    assert len(found.members) == len(found.graph)
    assert found.graph.kinds.count("input") == len(inputs)
    assert found.graph.kinds.count("output") == 1
    assert found.graph.kinds[-1] == "output"
    assert len(set(found.graph.names)) == len(found.graph)


def test_a_program_whose_operators_no_longer_overwrite_computes_the_same() -> None:
    model = residual().eval()
    program = capture_model(model, PICTURES, "model").program
    assert program is not None
    assert torch.allclose(program.module()(PICTURES), model(PICTURES), atol=1e-6)


def test_views_and_constants_are_no_nodes_of_their_own() -> None:
    graph = captured(GptDecoder(SMALL), WORDS)
    layer = ["norm", "matmul", "attention", "matmul", "elementwise", "elementwise"]
    layer += ["norm", "matmul", "elementwise", "matmul", "elementwise", "elementwise"]
    start, end = (
        ["input", "embedding", "embedding", "elementwise", "elementwise"],
        ["norm", "matmul", "output"],
    )
    assert [*graph.kinds] == [*start, *layer, *layer, *end]
    assert graph.blocks[graph.kinds.index("attention")] == "blocks.0.attention"


def test_shared_weights_are_tied() -> None:
    graph = captured(GptDecoder(SMALL), WORDS)
    (tie,) = graph.ties
    assert [graph.kinds[node] for node in tie.nodes] == ["embedding", "matmul"]
    assert tie.parameters == 100 * 64


def test_a_module_that_runs_twice_is_tied_to_itself() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return self.layer(torch.relu(self.layer(x)))

    graph = captured(Twice(), torch.randn(2, 8))
    assert graph.ties[0].parameters == graph.total_parameters == 72


def test_what_overwrites_comes_between_what_it_overwrites_and_who_reads_it_then() -> None:
    class Overwriting(nn.Module):
        def forward(self, x: Any) -> Any:
            y = torch.sin(x)
            before = torch.cos(y)
            y.add_(1.0)
            z = torch.exp(y)
            z[:, 0] = before[:, 1]
            return torch.tanh(z)

    graph = captured(Overwriting(), torch.randn(2, 8))
    assert needs(graph, "cos") == {"sin"}
    assert needs(graph, "exp") == {"add"}
    assert needs(graph, "copy") == {"exp", "cos"}
    assert "copy" in needs(graph, "tanh")


def test_a_buffer_is_read_after_what_updates_it() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.count.add_(1)
            return self.last(self.inside(x) / self.count) * self.count

    found = capture_model(Counting(), torch.randn(2, 8), "model")
    assert needs(found.graph, "div") == {"inside.linear", "add"}
    assert needs(found.graph, "mul") == {"last.linear", "add"}
    assert found.graph.buffers.sum() == 4


def test_inputs_that_are_no_tensors_are_no_nodes() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Any, factor: int, mask: Any = None) -> Any:
            return (x * factor).add_(1)

    assert captured(Scaled(), torch.randn(2, 8), 3, None).names == ("x", "mul", "add", "output")


def test_a_mask_that_many_read_is_one_node_and_positions_go_with_their_reader() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places = nn.Embedding(16, 8)

        def forward(self, x: Any) -> Any:
            x = x + self.places(torch.arange(16))
            mask = torch.arange(16)[:, None] >= torch.arange(16)[None]
            for _ in range(2):
                x = functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
            return x

    found = capture_model(Masked(), torch.randn(2, 16, 8), "model")
    assert found.graph.kinds.count("attention") == 2
    assert needs(found.graph, "scaled_dot_product_attention#2") >= {"ge"}
    embedding = found.graph.kinds.index("embedding")
    assert found.members[embedding] == ("arange", "embedding")


def test_bytes_and_arithmetic_are_per_sample() -> None:
    small, large = (captured(GptDecoder(SMALL), WORDS[:1].repeat(n, 1)) for n in (2, 6))
    assert small.names == large.names
    assert small.flop.sum() == large.flop.sum()
    np.testing.assert_allclose(
        small.size.sum(), large.size.sum(), rtol=0.05
    )  # positions are read once a batch


def test_dropout_keeps_a_byte_and_not_a_number() -> None:
    plain, dropped = (
        captured(nn.Sequential(nn.Linear(8, 8), *more), torch.randn(2, 8)) for more in ((), (nn.Dropout(),))
    )
    assert dropped.saved.sum() - plain.saved.sum() == 8


def test_weights_that_are_not_trained_are_held_but_are_no_parameters() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
    model[0].requires_grad_(False)
    graph = captured(model, torch.randn(2, 8))
    assert graph.total_parameters == 18
    assert graph.buffers.sum() == 4 * 72


def test_a_block_without_gradients_keeps_nothing() -> None:
    class Partly(nn.Module):
        def __init__(self, frozen: bool) -> None:
            super().__init__()
            self.frozen, self.first, self.last = frozen, nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            with torch.set_grad_enabled(not self.frozen):
                x = torch.sigmoid(torch.exp(self.first(x)))
            return self.last(x)

    frozen, trained = (captured(Partly(frozen), torch.randn(2, 8)) for frozen in (True, False))
    assert frozen.saved.sum() < trained.saved.sum()
    assert frozen.flop.sum() == trained.flop.sum()


def test_a_model_larger_than_any_memory_is_captured() -> None:
    with torch.device("meta"):
        model = GptDecoder(
            TransformerShape(layers=2, width=200_000, heads=100, length=4096, vocabulary=500_000)
        )
        words = torch.zeros(1, 4096, dtype=torch.long)
    assert captured(model, words).total_parameters > 1e12


def test_inputs_may_be_given_by_name() -> None:
    model = BertEncoder(SMALL)
    by_place, by_name = (
        captured(model, WORDS, WORDS),
        capture_model(model, {"tokens": WORDS, "segments": WORDS}, "model"),
    )
    assert by_name.graph.names == by_place.names


class Routed(nn.Module):
    """A mixture of experts whose tokens really go different ways."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.gate, self.head = nn.Linear(width, 2), nn.Linear(width, 4)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, x: Any) -> Any:
        best, result = self.gate(x).argmax(-1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            chosen = (best == number).nonzero().squeeze(-1)
            if len(chosen):
                result = result.index_add(0, chosen, expert(x[chosen]))
        return self.head(x + result)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_model_whose_path_depends_on_data_is_captured_module_by_module(device: str) -> None:
    torch.manual_seed(0)
    with torch.device(device):
        model, x = Routed(), torch.randn(64, 16)
    found = capture_model(model, x, "routed")
    assert found.how == "modules"
    assert found.note.startswith("torch.export cannot trace it (")
    assert found.graph.total_parameters == sum(weight.numel() for weight in model.parameters())
    assert found.graph.flop.sum() * 64 == pytest.approx(2 * 64 * 16 * (2 + 16 + 4))
    assert {"experts.0", "experts.1", "gate", "head"} <= {*found.graph.names}
    assert needs(found.graph, "head") & {"experts.0", "experts.1"}
    assert needs(found.graph, "experts.1") >= {"gate"}


def test_such_a_model_that_is_too_large_to_run_is_refused() -> None:
    with torch.device("meta"):
        model, x = Routed(width=40_000), torch.randn(2, 40_000)
    with pytest.raises(BadInputError, match=r"^routed .* 12 GiB"):
        capture_model(model, x, "routed")


def test_what_only_fx_can_trace_is_traced_by_it() -> None:
    class Unusual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

        def forward(self, x: Any) -> Any:
            return slice(self.layers(x))

    found = capture_model(Unusual(), torch.randn(2, 8), "unusual")
    assert found.how == "fx"
    assert found.module is not None
    assert found.graph.names == ("x", "layers.0", "layers.1", "layers.2", "output")
    assert found.graph.kinds == ("input", "matmul", "elementwise", "matmul", "output")
    assert found.graph.total_parameters == 8 * 16 + 16 + 16 * 2 + 2
    assert found.graph.saved.sum() == 4 * (8 + 16)


def test_a_model_that_fails_on_its_inputs_says_so_in_one_sentence() -> None:
    with pytest.raises(BadInputError, match=r"^wrong .*RuntimeError"):
        capture_model(nn.Linear(8, 8), torch.randn(2, 7), "wrong")


@pytest.mark.parametrize("inputs", [(), (torch.tensor(1.0),), (3,)], ids=["nothing", "a number", "no tensor"])
def test_inputs_without_a_batch_are_refused(inputs: tuple[Any, ...]) -> None:
    with pytest.raises(BadInputError, match="example inputs"):
        capture_model(nn.Linear(8, 8), inputs, "model")
