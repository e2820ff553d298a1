"""Small graphs that look like models, and plans for them."""

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from trimtab.partition import Devices, Graph, Plan, Stage, devices_of
from trimtab.partition.graph import Tie

MakeGraph = Callable[..., Graph]
MakePlan = Callable[..., Plan]
Target = Callable[[str], str]
Drawn = Callable[[str, str], list[ElementTree.Element]]


@pytest.fixture
def make_graph() -> MakeGraph:
    """A chain of blocks, each two products with a residual around them, between tied embeddings."""

    def make(
        blocks: int = 4, width: int = 256, tokens: int = 64, skip: bool = False, name: str = "tiny"
    ) -> Graph:
        names, paths, kinds, flop, parameters = ["x"], [""], ["input"], [0.0], [0.0]
        uses: list[tuple[int, int]] = []

        def add(node: str, path: str, kind: str, weights: float, *needs: int) -> int:
            names.append(node)
            paths.append(path)
            kinds.append(kind)
            parameters.append(weights)
            flop.append(2.0 * weights * tokens if kind == "matmul" else 0.0)
            uses.extend((need, len(names) - 1) for need in needs)
            return len(names) - 1

        last = add("wte", "net.wte", "embedding", 1000.0 * width, 0)
        first = last
        for block in range(blocks):
            up = add(f"up_{block}", f"net.h.{block}.up", "matmul", 4.0 * width * width, last)
            down = add(f"down_{block}", f"net.h.{block}.down", "matmul", 4.0 * width * width, up)
            last = add(f"add_{block}", f"net.h.{block}", "elementwise", 0.0, last, down)
        if skip:
            last = add("join", "net.join", "elementwise", 0.0, first, last)
        head = add("head", "net.head", "matmul", 1000.0 * width, last)
        add("out", "", "output", 0.0, head)
        count = len(names)
        size = np.full(count - 1, 4.0 * tokens * width)
        zero = np.zeros(count)
        return Graph(
            name="tiny",
            names=tuple(names),
            blocks=tuple(paths),
            kinds=tuple(kinds),
            calls=np.array([float(kind not in ("input", "output")) for kind in kinds]),
            flop=np.array(flop),
            traffic=np.array([8.0 * tokens * width * (kind not in ("input", "output")) for kind in kinds]),
            parameters=np.array(parameters),
            buffers=zero,
            saved=np.array([4.0 * tokens * width * (kind == "matmul") for kind in kinds]),
            split=zero,
            reduced_forward=zero,
            reduced_backward=zero,
            producer=np.arange(count - 1, dtype=np.int64),
            size=size,
            used=np.array([source for source, _ in uses], dtype=np.int64),
            user=np.array([target for _, target in uses], dtype=np.int64),
            ties=(Tie((first, head), 1000.0 * width),),
        )

    return make


@pytest.fixture
def chain_plan() -> MakePlan:
    """As many nodes for every device, in order."""

    def make(graph: Graph, devices: Devices, microbatches: int = 4, share: int = 2) -> Plan:
        parts = np.array_split(np.arange(len(graph)), len(devices))
        stages = tuple(Stage(tuple(map(int, part)), ((d,),)) for d, part in enumerate(parts))
        return Plan(stages, (share,), microbatches)

    return make


@pytest.fixture
def drawn() -> Drawn:
    """The rectangles of a class in a picture, which must be well formed."""

    def find(picture: str, kind: str) -> list[ElementTree.Element]:
        shapes = ElementTree.fromstring(picture).iter()
        return [shape for shape in shapes if shape.tag.endswith("rect") and shape.get("class") == kind]

    return find


@pytest.fixture
def four() -> Devices:
    """Two fast devices and two slow ones."""
    return devices_of("a100-40:2,t4:2", network="25Gbit")


@pytest.fixture(scope="session")
def target() -> Target:
    """The builder of one of the models in small_models.py, by name."""
    return lambda name: f"{Path(__file__).with_name('small_models.py')}:{name}"


@pytest.fixture(scope="session")
def even_plan() -> MakePlan:
    """As many nodes in each stage; devices are numbered stage by stage, or taken from `order`."""

    def make(
        graph: Graph,
        stages: int,
        shares: tuple[int, ...] = (2,),
        microbatches: int = 2,
        tensor: int = 1,
        order: tuple[int, ...] = (),
        **more: object,
    ) -> Plan:
        width = len(shares) * tensor
        devices = order or tuple(range(stages * width))
        cut = []
        for number, part in enumerate(np.array_split(np.arange(len(graph)), stages)):
            own = devices[number * width : (number + 1) * width]
            ranks = tuple(own[i : i + tensor] for i in range(0, width, tensor))
            cut.append(Stage(tuple(map(int, part)), ranks))
        return Plan(tuple(cut), shares, microbatches, **more)  # type: ignore[arg-type]

    return make


@pytest.fixture
def pair() -> Devices:
    return devices_of("t4:2", "100Gbit")


@pytest.fixture
def branches() -> Graph:
    """Two long branches, "left" and "right", between an input and an output."""
    count = 12
    zero, one = np.zeros(count), np.ones(count)
    sources, targets = [], []
    for branch in (range(1, 6), range(6, 11)):
        path = [0, *branch, 11]
        sources += path[:-1]
        targets += path[1:]
    work = np.array([0.0, *[5e9] * 10, 0.0])
    blocks = ("", *(f"left.{n}" for n in range(5)), *(f"right.{n}" for n in range(5)), "")
    return Graph(
        "branches", tuple(map(str, range(count))), blocks, ("input", *["matmul"] * 10, "output"),
        one, work, work / 1e3, work / 1e4, zero, zero, zero, zero, zero,
        np.arange(11), np.full(11, 1e4), np.array(sources), np.array(targets),
    )  # fmt: skip
