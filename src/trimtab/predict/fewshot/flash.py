"""FLASH: an application's known runs become an embedding, and the embedding an input of the base learner.

FLASH paper, section 2 and appendix A.5, table 6, with Sizeless (`sizeless.py`) as the base learner. The
meta-learner is a bidirectional GRU over the known runs X_t = [x_t, y_t], settings and metrics with the time;
its output is the mean over M sequences, here orders of the known runs, O_M = 1/M Σ H(I_m), and a fully
connected layer makes the embedding of it. Both learn together, end to end, from episodes: a training case,
some of its runs taken as known, and others to predict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import factorial
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.fewshot.batches import Batch, Stack, batch_of, input_width
from trimtab.predict.fewshot.case import Case
from trimtab.predict.fewshot.features import Encoder
from trimtab.predict.fewshot.predictor import Rows, need_cases
from trimtab.predict.fewshot.protocol import SHOTS
from trimtab.predict.fewshot.schema import Array
from trimtab.predict.fewshot.training import Learning, fully_connected, load_torch, percentage_error, seeded


@dataclass(frozen=True, slots=True)
class Flash:
    """The networks of tables 3 and 6; what they do not say is marked."""

    embedding: int = 32
    """Numbers that describe an application."""
    recurrent_inputs: int = 256
    """Width of an observation as the GRU gets it."""
    recurrent_layers: int = 2
    """Layers of the GRU."""
    recurrent_neurons: int = 256
    """Neurons of a layer in each direction."""
    dropout: float = 0.05
    """Between the GRU's layers."""
    sequences: int = 6
    """M: orders of the known runs to average over, at most; in training one at random (not in the paper)."""
    layers: int = 4
    """Hidden layers of the base learner."""
    neurons: int = 256
    """Neurons in each."""
    l2: float = 0.01
    """Penalty on the square of the base learner's weights."""
    meta_l2: float = 1e-4
    """The same on the meta-learner's, which could otherwise make up for it with a long embedding (not in the
    paper)."""
    learning_rate: float = 3e-4
    """Of Adam on the meta-learner, at the start; it falls to 0 along a cosine (not in the paper)."""
    base_learning_rate: float = 1e-3
    """The same on the base learner (not in the paper)."""
    episodes: int = 12_000
    """Episodes to learn from (not in the paper)."""
    targets: int = 16
    """Runs to predict in an episode, at most (not in the paper)."""
    batch: int = 16
    """Episodes in a step (not in the paper)."""
    clip: float = 1.0
    """Largest norm of a gradient (not in the paper)."""
    places: int = max(SHOTS)
    """Known runs the base learner sees itself, those nearest to the target; the GRU sees all."""
    time_limit: float = 300.0
    """Seconds of training, at most. A training that reaches it is not repeated exactly by its seed."""
    threads: int = 1
    """Threads to train with."""
    seed: int = 0

    @property
    def name(self) -> str:
        return "flash"

    def fit(self, cases: Sequence[Case]) -> "FittedFlash":
        need_cases(cases, self.name)
        encoder = Encoder.of(cases)
        return FittedFlash(self, encoder, _train(self, Stack.of(encoder, cases)))


@dataclass(frozen=True, slots=True, eq=False)
class FittedFlash:
    options: Flash
    encoder: Encoder
    modules: Any

    def predict(self, case: Case, known: Rows) -> Array:
        torch = load_torch(self.options.name)
        batch = batch_of(self.encoder, case, known, self.options.places)
        with torch.no_grad():
            embedding = self._embed(torch, batch)
            log_factor = _base(torch, self.modules, torch.from_numpy(batch.inputs), embedding)
        return np.asarray(np.exp(batch.level[0] + log_factor[0].double().numpy()))

    def embedding(self, case: Case, known: Rows) -> Array:
        """What the meta-learner makes of the known runs of an application, whatever their order."""
        torch = load_torch(self.options.name)
        batch = batch_of(self.encoder, case, known, self.options.places)
        with torch.no_grad():
            return np.asarray(self._embed(torch, batch)[0].double().numpy())

    def _embed(self, torch: Any, batch: Batch) -> Any:
        orders = _orders(batch.seen.shape[1], self.options.sequences)
        return _embed(torch, self.modules, torch.from_numpy(batch.seen[:, orders]))


def _orders(count: int, most: int) -> NDArray[np.intp]:
    """All orders of so many, or `most` at random, but always the same."""
    if factorial(count) <= most:
        return np.array(list(permutations(range(count))), dtype=np.intp)
    random = np.random.default_rng(0)
    return np.array([random.permutation(count) for _ in range(most)], dtype=np.intp)


def _modules(torch: Any, options: Flash, encoder: Encoder) -> Any:
    """The meta-learner's three layers (figure 7), and the base learner."""
    nn = torch.nn
    base_inputs = input_width(encoder, options.places) + options.embedding
    return nn.ModuleDict(
        {
            "input": nn.Linear(encoder.observation_width, options.recurrent_inputs),
            "recurrent": nn.GRU(
                options.recurrent_inputs,
                options.recurrent_neurons,
                options.recurrent_layers,
                dropout=options.dropout if options.recurrent_layers > 1 else 0.0,
                bidirectional=True,
                batch_first=True,
            ),
            "embedding": nn.Linear(2 * options.recurrent_neurons, options.embedding),
            "base": fully_connected(torch, base_inputs, options.neurons, options.layers),
        }
    )


def _embed(torch: Any, modules: Any, sequences: Any) -> Any:
    """(episode, sequence, known, feature) to (episode, embedding)."""
    episodes, orders = sequences.shape[:2]
    observations = torch.relu(modules["input"](sequences.flatten(0, 1)))
    _, last = modules["recurrent"](observations)
    # The last states of the top layer, one from each direction: H(I_m).
    both = torch.cat([last[-2], last[-1]], dim=-1)
    mean = both.unflatten(0, (episodes, orders)).mean(dim=1)
    return torch.relu(modules["embedding"](mean))


def _base(torch: Any, modules: Any, inputs: Any, embedding: Any) -> Any:
    """log(time / mean of the known) of (episode, target, feature), each with the episode's embedding."""
    repeated = embedding.unsqueeze(1).expand(-1, inputs.shape[1], -1)
    return modules["base"](torch.cat([inputs, repeated], dim=-1)).squeeze(-1)


def _train(options: Flash, stack: Stack) -> Any:
    torch = load_torch(options.name)
    random = np.random.default_rng(options.seed)
    runs = stack.run_counts
    deadline = monotonic() + options.time_limit
    with seeded(torch, options.seed, options.threads):
        modules = _modules(torch, options, stack.encoder)
        meta = [w for name in ("input", "recurrent", "embedding") for w in modules[name].parameters()]
        base = list(modules["base"].parameters())
        groups: list[dict[str, Any]] = [
            {"params": meta, "weight_decay": options.meta_l2},
            {"params": base, "weight_decay": options.l2, "lr": options.base_learning_rate},
        ]
        steps = options.episodes // options.batch
        learning = Learning(torch, groups, options.learning_rate, steps)
        for _ in range(steps):
            shots = int(random.integers(1, max(SHOTS) + 1))
            eligible = np.flatnonzero(runs > shots)
            if not eligible.size:
                continue
            cases = random.choice(eligible, options.batch)
            drawn = stack.draw(cases, shots, options.targets, options.places, random)
            embedding = _embed(torch, modules, torch.from_numpy(drawn.seen[:, None]))
            log_factor = _base(torch, modules, torch.from_numpy(drawn.inputs), embedding)
            learning.step(percentage_error(torch, log_factor, drawn), options.clip)
            if monotonic() > deadline:
                break
    return modules.eval()
