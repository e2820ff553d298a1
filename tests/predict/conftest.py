"""Models, profiles and placements to test with; each takes only what a test is about."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from trimtab.core import Host, Model, Operators, Profile, Series, Steps, Workload
from trimtab.predict import Placements

# A busy machine must not fail a law: examples may take their time.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def _operators(kind: str, calls: float, fixed: float, sample: float) -> list[Operators]:
    """Calls of one kind, forward and twice as much backward; a third of the traffic is results."""
    return [
        Operators("forward", kind, calls, calls * fixed, calls * sample, calls * sample / 3),
        Operators("backward", kind, 2 * calls, 2 * calls * fixed, 2 * calls * sample, 2 * calls * sample / 3),
    ]


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Model]:
    def make(
        conv: int = 20,
        matmul: int = 10,
        attention: int = 0,
        rnn: int = 0,
        flop: float = 2e9,
        parameters: int = 10_000_000,
        **fields: Any,
    ) -> Model:
        products = {"conv": conv, "matmul": matmul, "attention": attention, "rnn": rnn}
        light = {"norm": conv, "pool": 1, "softmax": 1, "embedding": 1, "copy": 3, "elementwise": 40}
        operators = [
            *(o for kind, calls in products.items() if calls for o in _operators(kind, calls, 4e5, 2e6)),
            *(o for kind, calls in light.items() if calls for o in _operators(kind, calls, 1e3, 1e6)),
            Operators("optimizer", "elementwise", 60.0, 12.0 * parameters, 0.0),
        ]
        facts: dict[str, Any] = {
            "parameter_bytes": 4.0 * parameters,
            "buffer_bytes": 1e4,
            "modules": 50,
            "layers": (),
            "optimizer": "SGD",
            "optimizer_state_bytes": 4.0 * parameters,
            "precision": "fp32",
            "forward_flop_per_sample": flop,
            "step_flop_per_sample": 3 * flop,
            "saved_fixed_bytes": 0.0,
            "saved_sample_bytes": 5e7,
            "operators": tuple(operators),
        }
        return Model(parameters=parameters, **{**facts, **fields})

    return make


@pytest.fixture(scope="session")
def make_profile(make_model: Callable[..., Model]) -> Callable[..., Profile]:
    def make(
        model: Model | None = None,
        gpu: str | None = None,
        seconds: Sequence[float] = (0.5, 0.4, 0.6),
        cores: float = 4.0,
        memory: float = 2e9,
        **steps: Any,
    ) -> Profile:
        facts: dict[str, Any] = {"batch_size": 16, "workers": 1, "device": "cuda" if gpu else "cpu"}
        return Profile(
            id="p1",
            created=1.0,
            workload=Workload("resnet"),
            host=Host("a processor", cores, 16e9, (gpu,) if gpu else ()),
            window=30.0,
            every=0.1,
            method="cgroup-v2",
            ended="exited",
            status=0,
            series=Series(time=(0.0, 0.1), memory=(memory / 2, memory)),
            model=model or make_model(),
            steps=Steps(seconds=tuple(seconds), **{**facts, **steps}),
        )

    return make


@pytest.fixture(scope="session")
def place() -> Callable[..., Placements]:
    """Placements from one mapping each: `device` is a name or None for the CPU, the rest has defaults."""

    def make(*rows: dict[str, Any]) -> Placements:
        names = tuple(dict.fromkeys(r["device"] for r in rows if r.get("device")))
        defaults = {"per_node": 1, "nodes": 1, "cores": 8, "memory": 64e9, "network": 1e9, "batch": 16}
        columns = {k: np.array([float(r.get(k, v)) for r in rows]) for k, v in defaults.items()}
        index = [names.index(r["device"]) if r.get("device") else -1 for r in rows]
        return Placements(devices=names, device=np.array(index, dtype=np.intp), **columns)

    return make
