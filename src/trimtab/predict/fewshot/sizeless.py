"""Sizeless: a fully connected network from known runs and a target configuration to the time there.

FLASH paper, appendix A.3, tables 2 and 3. The network answers with the logarithm of the factor from the
geometric mean of the known times to the target's, and its loss is the percentage error in seconds, which is
the same for seconds and for factors. A network that answers in seconds would first have to learn to copy its
input over four orders of magnitude. One network serves all numbers of known runs, up to three as in the
paper: each has a place among the inputs, nearest to the target first, and stays 0 when there are fewer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np

from trimtab.predict.fewshot.batches import Stack, batch_of, input_width
from trimtab.predict.fewshot.case import Case
from trimtab.predict.fewshot.features import Encoder
from trimtab.predict.fewshot.predictor import Rows, need_cases
from trimtab.predict.fewshot.protocol import SHOTS
from trimtab.predict.fewshot.schema import Array
from trimtab.predict.fewshot.training import Learning, fully_connected, load_torch, percentage_error, seeded


@dataclass(frozen=True, slots=True)
class Sizeless:
    """The network of table 3; what it does not say is marked."""

    layers: int = 4
    """Hidden layers."""
    neurons: int = 256
    """Neurons in each."""
    epochs: int = 200
    """How often each measured run is the target, every time with other known ones."""
    l2: float = 0.01
    """Penalty on the square of the weights."""
    learning_rate: float = 1e-3
    """Of Adam, at the start; it falls to 0 along a cosine (not in the paper)."""
    batch: int = 256
    """Targets in a step (not in the paper)."""
    clip: float = 1.0
    """Largest norm of a gradient, lest one time guessed far too long undo the rest (not in the paper)."""
    places: int = max(SHOTS)
    """Known runs the network has room for; of more, the nearest to the target count."""
    time_limit: float = 300.0
    """Seconds of training, at most. A training that reaches it is not repeated exactly by its seed."""
    threads: int = 1
    """Threads to train with."""
    seed: int = 0

    @property
    def name(self) -> str:
        return "sizeless"

    def fit(self, cases: Sequence[Case]) -> "FittedSizeless":
        need_cases(cases, self.name)
        encoder = Encoder.of(cases)
        return FittedSizeless(self, encoder, _train(self, Stack.of(encoder, cases)))


@dataclass(frozen=True, slots=True, eq=False)
class FittedSizeless:
    options: Sizeless
    encoder: Encoder
    network: Any

    def predict(self, case: Case, known: Rows) -> Array:
        torch = load_torch(self.options.name)
        batch = batch_of(self.encoder, case, known, self.options.places)
        with torch.no_grad():
            log_factor = self.network(torch.from_numpy(batch.inputs[0])).squeeze(-1).double().numpy()
        return np.asarray(np.exp(batch.level[0] + log_factor))


def _train(options: Sizeless, stack: Stack) -> Any:
    torch = load_torch(options.name)
    random = np.random.default_rng(options.seed)
    runs = stack.run_counts
    visits = np.repeat(np.arange(len(runs)), runs)
    steps_per_epoch = -(-len(visits) // options.batch)
    deadline = monotonic() + options.time_limit
    with seeded(torch, options.seed, options.threads):
        inputs = input_width(stack.encoder, options.places)
        network = fully_connected(torch, inputs, options.neurons, options.layers)
        weights = {"params": list(network.parameters()), "weight_decay": options.l2}
        learning = Learning(torch, [weights], options.learning_rate, options.epochs * steps_per_epoch)
        for _ in range(options.epochs):
            random.shuffle(visits)
            for cases in np.array_split(visits, steps_per_epoch):
                shots = int(random.integers(1, max(SHOTS) + 1))
                cases = cases[runs[cases] > shots]
                if not cases.size:
                    continue
                drawn = stack.draw(cases, shots, 1, options.places, random)
                log_factor = network(torch.from_numpy(drawn.inputs)).squeeze(-1)
                learning.step(percentage_error(torch, log_factor, drawn), options.clip)
            if monotonic() > deadline:
                break
    return network.eval()
