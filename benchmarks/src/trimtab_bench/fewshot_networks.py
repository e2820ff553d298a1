"""Rivals of the few-shot bench with PyTorch: Sizeless, and FLASH with Sizeless as its base learner."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise, permutations
from math import factorial
from time import monotonic
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trimtab.core import MissingDependencyError
from trimtab.predict.fewshot.blend import SHOTS
from trimtab.predict.fewshot.case import METRICS, SETTINGS, Array, Case, Flags
from trimtab.predict.fewshot.predictor import (
    Rows,
    column_means,
    column_medians,
    coordinates,
    distances,
    known_log_seconds,
    need_cases,
)

# Beyond so many spreads a value is only "very large": a network does not extrapolate.
_FARTHEST = 4.0


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Standardisation of a table's columns, learned from training rows.

    A column is centred and divided by its spread; an unknown value becomes 0, and a column of its own marks
    it. A column that did not vary in training is left out, so that one that varies only later does no harm.
    """

    centre: Array
    spread: Array
    varies: Flags
    comes_and_goes: Flags

    @classmethod
    def of(cls, values: Array) -> "Columns":
        """From rows in which NaN is unknown."""
        known = ~np.isnan(values)
        centre = np.nan_to_num(column_means(values))
        spread = np.sqrt(np.nan_to_num(column_means((values - centre) ** 2)))
        varies = spread > 1e-9 * (1.0 + np.abs(centre))
        comes_and_goes = np.asarray(known.any(axis=0) & ~known.all(axis=0))
        return cls(centre, np.where(varies, spread, 1.0), varies, comes_and_goes)

    @property
    def width(self) -> int:
        return int(self.varies.sum() + self.comes_and_goes.sum())

    def encode(self, values: Array) -> Array:
        """(…, columns) to (…, width): what varies, then a 1 where what comes and goes is unknown."""
        standard = (values[..., self.varies] - self.centre[self.varies]) / self.spread[self.varies]
        known = np.nan_to_num(np.clip(standard, -_FARTHEST, _FARTHEST))
        return np.concatenate([known, np.isnan(values[..., self.comes_and_goes])], axis=-1)


@dataclass(frozen=True, slots=True, eq=False)
class CaseEncoder:
    """Features of known runs and of configurations to predict, for any number of episodes at once.

    Scales enter by their logarithm, switches as they are, metrics by the inverse hyperbolic sine of what they
    are in units of their usual size: zero stays zero and a large one counts by its logarithm.
    """

    settings: Columns
    metrics: Columns
    metric_scale: Array
    level: float  # mean of the logarithms of the training times
    level_spread: float  # their standard deviation
    ratio_spread: float  # standard deviation of the log times around the mean of their case

    @classmethod
    def of(cls, cases: Sequence[Case]) -> "CaseEncoder":
        """Learned from the runs of these cases that have a time."""
        measured = [case.only(~np.isnan(case.seconds)) for case in cases if not np.isnan(case.seconds).all()]
        settings = np.concatenate([case.settings for case in measured] or [np.empty((0, len(SETTINGS)))])
        shown = np.concatenate([case.metrics for case in measured] or [np.empty((0, len(METRICS)))])
        scale = np.nan_to_num(column_medians(np.where(shown != 0, np.abs(shown), np.nan)), nan=1.0)
        times = [np.log(case.seconds) for case in measured] or [np.zeros(1)]
        apart = np.concatenate([log_seconds - log_seconds.mean() for log_seconds in times])
        return cls(
            settings=Columns.of(coordinates(settings)),
            metrics=Columns.of(np.arcsinh(shown / scale)),
            metric_scale=scale,
            level=float(np.concatenate(times).mean()),
            level_spread=float(np.concatenate(times).std()) or 1.0,
            ratio_spread=float(apart.std()) or 1.0,
        )

    @property
    def target_width(self) -> int:
        return self.settings.width

    @property
    def observation_width(self) -> int:
        return self.run_width + 2

    @property
    def run_width(self) -> int:
        return self.settings.width + self.metrics.width

    def targets(self, settings: Array) -> Array:
        """Features of configurations that need not have run: (…, settings) to (…, target_width)."""
        rows = coordinates(settings.reshape(-1, settings.shape[-1]))
        return self.settings.encode(rows).reshape(*settings.shape[:-1], self.target_width)

    def observations(self, settings: Array, log_seconds: Array, metrics: Array) -> Array:
        """Features of known runs; those of an application lie along the last axis of `log_seconds`."""
        return self.with_times(self.runs(settings, metrics), log_seconds)

    def runs(self, settings: Array, metrics: Array) -> Array:
        """The part of an observation that does not depend on which others are known."""
        shown = self.metrics.encode(np.arcsinh(metrics / self.metric_scale))
        return np.concatenate([self.targets(settings), shown], axis=-1)

    def with_times(self, runs: Array, log_seconds: Array) -> Array:
        """Observations from the result of `runs` and the log times.

        A time appears twice: relative to all, and relative to the mean of the application's known ones, which
        would be lost in the first.
        """
        level = np.clip((log_seconds - self.level) / self.level_spread, -_FARTHEST, _FARTHEST)
        apart = (log_seconds - log_seconds.mean(axis=-1, keepdims=True)) / self.ratio_spread
        apart = np.clip(apart, -_FARTHEST, _FARTHEST)
        return np.concatenate([runs, level[..., None], apart[..., None]], axis=-1)


Inputs = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeBatch:
    """Episodes with equally many known runs."""

    observed: Inputs  # (episode, known, feature): the observations
    inputs: Inputs
    """(episode, target, feature): the nearest observations side by side, then the target configuration."""
    level: Array  # (episode,): the mean of the logarithms of the known times


@dataclass(frozen=True, slots=True, eq=False)
class Drawn(EpisodeBatch):
    """Episodes drawn from training cases, so that the answers are known."""

    log_factor: Inputs
    """(episode, target): log(measured time / mean of the known); 0 where nothing was measured."""
    measured: Flags
    """(episode, target): a case that has fewer runs than were asked for is filled up with unmeasured ones."""


def batch_of(encoder: CaseEncoder, case: Case, known: Rows, places: int) -> EpisodeBatch:
    """One episode: every configuration of a case as a target; the order of the known runs does not matter."""
    known = np.sort(known)
    log_seconds = known_log_seconds(case, known)
    observed = encoder.observations(case.settings[known], log_seconds, case.metrics[known])[None]
    apart = distances(case.settings, case.settings[known])[None]
    inputs = _inputs(observed, encoder.targets(case.settings)[None], apart, places)
    return EpisodeBatch(observed.astype(np.float32), inputs, log_seconds.mean(keepdims=True))


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Training cases as arrays (case, row, …), to draw without a loop; short ones get unmeasured rows."""

    encoder: CaseEncoder
    runs: Array  # `CaseEncoder.runs` of each run
    targets: Array  # `CaseEncoder.targets` of each configuration
    log_seconds: Array  # naN where there is no time
    apart: Array  # (case, row, row): distance between two configurations of a case

    @classmethod
    def of(cls, encoder: CaseEncoder, cases: Sequence[Case]) -> "Stack":
        shape = len(cases), max(len(case) for case in cases)
        runs = np.zeros((*shape, encoder.run_width))
        targets = np.zeros((*shape, encoder.target_width))
        log_seconds = np.full(shape, np.nan)
        apart = np.zeros((*shape, shape[1]))
        for i, case in enumerate(cases):
            rows = len(case)
            runs[i, :rows] = encoder.runs(case.settings, case.metrics)
            targets[i, :rows] = encoder.targets(case.settings)
            log_seconds[i, :rows] = np.log(case.seconds)
            apart[i, :rows, :rows] = distances(case.settings, case.settings)
        return cls(encoder, runs, targets, log_seconds, apart)

    @property
    def run_counts(self) -> Rows:
        """Number of runs with a time, by case."""
        return np.asarray((~np.isnan(self.log_seconds)).sum(axis=1))

    def draw(self, cases: Rows, shots: int, targets: int, places: int, random: np.random.Generator) -> Drawn:
        """An episode of each of these cases, `shots` known runs and `targets` others, all at random.

        Every case needs more runs with a time than `shots`.
        """
        unmeasured = np.isnan(self.log_seconds[cases])
        order = np.argsort(random.random(unmeasured.shape) + unmeasured, axis=1)
        known, predicted = order[:, :shots], order[:, shots : shots + targets]
        case = cases[:, None]
        log_seconds = self.log_seconds[case, known]
        level = log_seconds.mean(axis=1)
        observed = self.encoder.with_times(self.runs[case, known], log_seconds)
        apart = self.apart[cases[:, None, None], predicted[:, :, None], known[:, None]]
        log_factor = self.log_seconds[case, predicted] - level[:, None]
        return Drawn(
            observed=observed.astype(np.float32),
            inputs=_inputs(observed, self.targets[case, predicted], apart, places),
            level=level,
            log_factor=np.nan_to_num(log_factor).astype(np.float32),
            measured=~np.isnan(log_factor),
        )


def input_width(encoder: CaseEncoder, places: int) -> int:
    """Number of features of `EpisodeBatch.inputs`."""
    return places * encoder.observation_width + encoder.target_width


def _inputs(observed: Array, targets: Array, apart: Array, places: int) -> Inputs:
    """The `places` observations nearest to each target, nearest first and 0 where there are fewer, and it."""
    order = np.argsort(apart, axis=-1, kind="stable")[..., :places]
    chosen = np.take_along_axis(observed[:, None], order[..., None], axis=2)
    side_by_side = chosen.reshape(*order.shape[:2], -1)
    empty = places * observed.shape[-1] - side_by_side.shape[-1]
    filled = np.pad(side_by_side, ((0, 0), (0, 0), (0, empty)))
    return np.concatenate([filled, targets], axis=-1).astype(np.float32)


def load_torch(user: str) -> Any:
    """The module torch; `user` is named in the error if it is missing."""
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(f"{user} needs PyTorch: pip install 'trimtab[learn]'") from None
    return torch


@contextmanager
def seeded(torch: Any, seed: int, threads: int) -> Iterator[None]:
    """Compute from this seed with so many threads, and leave both as they were."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    # Weights that a penalty drives to zero would otherwise linger as numbers too small to compute with fast.
    torch.set_flush_denormal(True)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)


def fully_connected(torch: Any, inputs: int, neurons: int, layers: int) -> Any:
    """A network of so many hidden layers and one answer, which is 0 until it is trained."""
    widths = [inputs, *[neurons] * layers]
    hidden = [
        module
        for before, after in pairwise(widths)
        for module in (torch.nn.Linear(before, after), torch.nn.ReLU())
    ]
    answer = torch.nn.Linear(neurons, 1)
    torch.nn.init.zeros_(answer.weight)
    torch.nn.init.zeros_(answer.bias)
    return torch.nn.Sequential(*hidden, answer)


@dataclass(frozen=True, slots=True)
class NetworkRival(ABC):
    """Settings and training that both networks share; what the FLASH paper does not say is marked.

    A network answers with the logarithm of the factor from the geometric mean of the known times to the
    target's, and its loss is the percentage error in seconds, which is the same for seconds and for factors:
    a network that answers in seconds would first have to learn to copy its input over four orders of
    magnitude. One network serves up to three known runs: each has a place among the inputs, nearest to the
    target first, 0 if there are fewer.
    """

    name: ClassVar[str]
    layers: int = 4  # hidden layers
    neurons: int = 256  # neurons in each
    l2: float = 0.01  # penalty on the square of the weights
    batch: int = 256  # episodes in a step (not in the paper)
    targets: int = 1  # runs to predict in an episode, at most (not in the paper)
    clip: float = 1.0
    """Largest norm of a gradient, lest one time guessed far too long undo the rest (not in the paper)."""
    places: int = max(SHOTS)  # known runs the network has room for; of more, the nearest to the target count
    learning_rate: float = 1e-3  # Of Adam, at the start; it falls to 0 along a cosine (not in the paper)
    time_limit: float = 300.0
    """Seconds of training, at most. A training that reaches it is not repeated exactly by its seed."""
    threads: int = 1  # threads to train with
    seed: int = 0

    @abstractmethod
    def network(self, torch: Any, encoder: CaseEncoder) -> Any:
        """The untrained modules."""

    @abstractmethod
    def weights(self, network: Any) -> list[dict[str, Any]]:
        """Parameter groups of the optimizer."""

    @abstractmethod
    def steps(self, runs: Rows) -> int:
        """Training steps for cases with so many measured runs each."""

    @abstractmethod
    def batches(self, runs: Rows, random: np.random.Generator) -> Iterator[tuple[Rows, int]]:
        """Cases of each training step, and how many of their runs are known."""

    @abstractmethod
    def log_factor(self, torch: Any, network: Any, sequences: Any, inputs: Any) -> Any:
        """(episode, target) from sequences of observations and the base learner's inputs."""

    def sequences(self, observed: Inputs) -> Inputs:
        """(episode, sequence, known, feature): the known runs in their own order."""
        return observed[:, None]

    def fit(self, cases: Sequence[Case]) -> "FittedNetwork":
        """Train on episodes of the cases, with Adam, short gradients and a rate that falls along a cosine."""
        need_cases(cases, self.name)
        torch = load_torch(self.name)
        encoder = CaseEncoder.of(cases)
        stack = Stack.of(encoder, cases)
        random, runs = np.random.default_rng(self.seed), stack.run_counts
        deadline = monotonic() + self.time_limit
        with seeded(torch, self.seed, self.threads):
            network = self.network(torch, encoder)
            groups = self.weights(network)
            optimizer = torch.optim.Adam(groups, self.learning_rate, fused=True)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, self.steps(runs)))
            weights = [weight for group in groups for weight in group["params"]]
            for chosen, shots in self.batches(runs, random):
                if monotonic() > deadline:
                    break
                if not chosen.size:
                    continue
                drawn = stack.draw(chosen, shots, self.targets, self.places, random)
                sequences, inputs = torch.from_numpy(drawn.observed[:, None]), torch.from_numpy(drawn.inputs)
                log_factor = self.log_factor(torch, network, sequences, inputs)
                off = torch.exp(log_factor - torch.from_numpy(drawn.log_factor)) - 1.0
                loss = off.abs()[torch.from_numpy(drawn.measured)].mean()
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(weights, self.clip)
                optimizer.step()
                schedule.step()
        return FittedNetwork(self, encoder, network.eval())


@dataclass(frozen=True, slots=True, eq=False)
class FittedNetwork:
    """A trained network."""

    rival: NetworkRival
    encoder: CaseEncoder
    network: Any

    def predict(self, case: Case, known: Rows) -> Array:
        torch = load_torch(self.rival.name)
        batch = batch_of(self.encoder, case, known, self.rival.places)
        sequences = torch.from_numpy(self.rival.sequences(batch.observed))
        with torch.no_grad():
            log_factor = self.rival.log_factor(torch, self.network, sequences, torch.from_numpy(batch.inputs))
        return np.asarray(np.exp(batch.level[0] + log_factor[0].double().numpy()))


@dataclass(frozen=True, slots=True)
class Sizeless(NetworkRival):
    """A fully connected network from known runs and a target configuration to the time there.

    FLASH paper, appendix A.3, tables 2 and 3.
    """

    name: ClassVar[str] = "sizeless"
    epochs: int = 200  # how often each measured run is the target, every time with other known ones

    def network(self, torch: Any, encoder: CaseEncoder) -> Any:
        return fully_connected(torch, input_width(encoder, self.places), self.neurons, self.layers)

    def weights(self, network: Any) -> list[dict[str, Any]]:
        return [{"params": list(network.parameters()), "weight_decay": self.l2}]

    def steps(self, runs: Rows) -> int:
        return self.epochs * -(-int(runs.sum()) // self.batch)

    def batches(self, runs: Rows, random: np.random.Generator) -> Iterator[tuple[Rows, int]]:
        visits = np.repeat(np.arange(len(runs)), runs)
        for _ in range(self.epochs):
            random.shuffle(visits)
            for cases in np.array_split(visits, -(-len(visits) // self.batch)):
                shots = int(random.integers(1, max(SHOTS) + 1))
                yield cases[runs[cases] > shots], shots

    def log_factor(self, torch: Any, network: Any, sequences: Any, inputs: Any) -> Any:
        return network(inputs).squeeze(-1)


@dataclass(frozen=True, slots=True)
class Flash(NetworkRival):
    """Known runs become an embedding, and the embedding an input of the base learner, which is Sizeless.

    FLASH paper, section 2 and appendix A.5, tables 3 and 6. Its meta-learner is a bidirectional GRU over the
    known runs X_t = [x_t, y_t], settings and metrics with the time; its output is the mean over M sequences,
    here orders of the known runs, O_M = 1/M Σ H(I_m); a fully connected layer makes the embedding of it. Both
    learn together from episodes: a training case, some of its runs known, and others to predict.
    """

    name: ClassVar[str] = "flash"
    embedding: int = 32  # numbers that describe an application
    recurrent_inputs: int = 256  # width of an observation as the GRU gets it
    recurrent_layers: int = 2  # layers of the GRU
    recurrent_neurons: int = 256  # neurons of a layer in each direction
    dropout: float = 0.05  # between the GRU's layers
    orders: int = 6
    """M: orders of the known runs to average over, at most; in training one at random (not in the paper)."""
    meta_l2: float = 1e-4
    """Penalty on the meta-learner's weights, which could otherwise make up for the base learner's penalty
    with a long embedding (not in the paper)."""
    learning_rate: float = 3e-4  # Of Adam on the meta-learner (not in the paper)
    base_learning_rate: float = 1e-3  # Of Adam on the base learner (not in the paper)
    episodes: int = 12_000  # episodes to learn from (not in the paper)
    targets: int = 16
    batch: int = 16

    def network(self, torch: Any, encoder: CaseEncoder) -> Any:
        """The meta-learner's three layers (figure 7), and the base learner."""
        nn = torch.nn
        base_inputs = input_width(encoder, self.places) + self.embedding
        return nn.ModuleDict(
            {
                "input": nn.Linear(encoder.observation_width, self.recurrent_inputs),
                "recurrent": nn.GRU(
                    self.recurrent_inputs,
                    self.recurrent_neurons,
                    self.recurrent_layers,
                    dropout=self.dropout if self.recurrent_layers > 1 else 0.0,
                    bidirectional=True,
                    batch_first=True,
                ),
                "embedding": nn.Linear(2 * self.recurrent_neurons, self.embedding),
                "base": fully_connected(torch, base_inputs, self.neurons, self.layers),
            }
        )

    def weights(self, network: Any) -> list[dict[str, Any]]:
        meta = [w for name in ("input", "recurrent", "embedding") for w in network[name].parameters()]
        base = list(network["base"].parameters())
        return [
            {"params": meta, "weight_decay": self.meta_l2},
            {"params": base, "weight_decay": self.l2, "lr": self.base_learning_rate},
        ]

    def steps(self, runs: Rows) -> int:
        return self.episodes // self.batch

    def batches(self, runs: Rows, random: np.random.Generator) -> Iterator[tuple[Rows, int]]:
        for _ in range(self.episodes // self.batch):
            shots = int(random.integers(1, max(SHOTS) + 1))
            eligible = np.flatnonzero(runs > shots)
            yield (random.choice(eligible, self.batch) if eligible.size else eligible), shots

    def sequences(self, observed: Inputs) -> Inputs:
        """The known runs in all orders, or in `orders` random ones that are always the same."""
        count = observed.shape[1]
        if factorial(count) <= self.orders:
            return observed[:, list(permutations(range(count)))]
        random = np.random.default_rng(0)
        return observed[:, [random.permutation(count) for _ in range(self.orders)]]

    def embed(self, torch: Any, network: Any, sequences: Any) -> Any:
        """(episode, sequence, known, feature) to (episode, embedding)."""
        observations = torch.relu(network["input"](sequences.flatten(0, 1)))
        _, last = network["recurrent"](observations)
        # The last states of the top layer, one from each direction: H(I_m).
        both = torch.cat([last[-2], last[-1]], dim=-1)
        mean = both.unflatten(0, sequences.shape[:2]).mean(dim=1)
        return torch.relu(network["embedding"](mean))

    def log_factor(self, torch: Any, network: Any, sequences: Any, inputs: Any) -> Any:
        embedding = self.embed(torch, network, sequences)
        repeated = embedding.unsqueeze(1).expand(-1, inputs.shape[1], -1)
        return network["base"](torch.cat([inputs, repeated], dim=-1)).squeeze(-1)
