"""Rivals of the few-shot bench with PyTorch: Sizeless, and FLASH with Sizeless as its base learner."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise, permutations
from math import factorial
from time import monotonic
from typing import Any

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
    """How the columns of one table are standardised, and which of them vary; learned from training rows.

    A column is centred and divided by its spread in training; unknown becomes 0, and a column of its own says
    so. A column that did not vary in training is left out, so that what varies only later does no harm.
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
    level: float
    """Mean of the logarithms of the training times."""
    level_spread: float
    """Their standard deviation."""
    ratio_spread: float
    """The same within a case: how far apart the times of one application are."""

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
        """Of configurations nobody need have run: (…, settings) to (…, target_width)."""
        rows = coordinates(settings.reshape(-1, settings.shape[-1]))
        return self.settings.encode(rows).reshape(*settings.shape[:-1], self.target_width)

    def observations(self, settings: Array, log_seconds: Array, metrics: Array) -> Array:
        """Of known runs, those of an application along the last axis but one, or the last of `log_seconds`.

        A time appears twice: how long it is among all, and how far from the mean of the application's known
        ones, which would be lost in the first.
        """
        return self.with_times(self.runs(settings, metrics), log_seconds)

    def runs(self, settings: Array, metrics: Array) -> Array:
        """The part of an observation that does not depend on which others are known."""
        shown = self.metrics.encode(np.arcsinh(metrics / self.metric_scale))
        return np.concatenate([self.targets(settings), shown], axis=-1)

    def with_times(self, runs: Array, log_seconds: Array) -> Array:
        """Observations from what `runs` made of them and their times."""
        level = np.clip((log_seconds - self.level) / self.level_spread, -_FARTHEST, _FARTHEST)
        apart = (log_seconds - log_seconds.mean(axis=-1, keepdims=True)) / self.ratio_spread
        apart = np.clip(apart, -_FARTHEST, _FARTHEST)
        return np.concatenate([runs, level[..., None], apart[..., None]], axis=-1)


Inputs = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeBatch:
    """Episodes with equally many known runs."""

    seen: Inputs
    """(episode, known, feature): the observations."""
    inputs: Inputs
    """(episode, target, feature): the nearest observations side by side, then the target configuration."""
    level: Array
    """(episode,): the mean of the logarithms of the known times."""


@dataclass(frozen=True, slots=True, eq=False)
class Drawn(EpisodeBatch):
    """Episodes drawn from training cases, so that the answers are known."""

    log_factor: Inputs
    """(episode, target): log(measured time / mean of the known); 0 where nothing was measured."""
    measured: Flags
    """(episode, target): a case that has fewer runs than were asked for is filled up with unmeasured ones."""


def batch_of(encoder: CaseEncoder, case: Case, known: Rows, places: int) -> EpisodeBatch:
    """One episode: every configuration of a case as a target, whatever the order of the known."""
    known = np.sort(known)
    log_seconds = known_log_seconds(case, known)
    seen = encoder.observations(case.settings[known], log_seconds, case.metrics[known])[None]
    apart = distances(case.settings, case.settings[known])[None]
    inputs = _inputs(seen, encoder.targets(case.settings)[None], apart, places)
    return EpisodeBatch(seen.astype(np.float32), inputs, log_seconds.mean(keepdims=True))


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Training cases as arrays (case, row, …), to draw without a loop; short ones get unmeasured rows."""

    encoder: CaseEncoder
    runs: Array
    """What `Encoder.runs` makes of each run."""
    targets: Array
    """What `Encoder.targets` makes of each configuration."""
    log_seconds: Array
    """NaN where there is no time."""
    apart: Array
    """(case, row, row): how far two configurations of a case are apart."""

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
        """How many runs of each case have a time."""
        return np.asarray((~np.isnan(self.log_seconds)).sum(axis=1))

    def draw(self, cases: Rows, shots: int, targets: int, places: int, random: np.random.Generator) -> Drawn:
        """An episode of each of these cases, `shots` known runs and `targets` others, all at random.

        Every case needs more runs with a time than `shots`.
        """
        unmeasured = np.isnan(self.log_seconds[cases])
        order = np.argsort(random.random(unmeasured.shape) + unmeasured, axis=1)
        known, wanted = order[:, :shots], order[:, shots : shots + targets]
        case = cases[:, None]
        log_seconds = self.log_seconds[case, known]
        level = log_seconds.mean(axis=1)
        seen = self.encoder.with_times(self.runs[case, known], log_seconds)
        apart = self.apart[cases[:, None, None], wanted[:, :, None], known[:, None]]
        log_factor = self.log_seconds[case, wanted] - level[:, None]
        return Drawn(
            seen=seen.astype(np.float32),
            inputs=_inputs(seen, self.targets[case, wanted], apart, places),
            level=level,
            log_factor=np.nan_to_num(log_factor).astype(np.float32),
            measured=~np.isnan(log_factor),
        )


def input_width(encoder: CaseEncoder, places: int) -> int:
    """How many features `EpisodeBatch.inputs` has."""
    return places * encoder.observation_width + encoder.target_width


def _inputs(seen: Array, targets: Array, apart: Array, places: int) -> Inputs:
    """The `places` observations nearest to each target, nearest first and 0 where there are fewer, and it."""
    order = np.argsort(apart, axis=-1, kind="stable")[..., :places]
    chosen = np.take_along_axis(seen[:, None], order[..., None], axis=2)
    side_by_side = chosen.reshape(*order.shape[:2], -1)
    empty = places * seen.shape[-1] - side_by_side.shape[-1]
    filled = np.pad(side_by_side, ((0, 0), (0, 0), (0, empty)))
    return np.concatenate([filled, targets], axis=-1).astype(np.float32)


def load_torch(user: str) -> Any:
    """The module; `user` is who needs it, should it be missing."""
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


def percentage_error(torch: Any, log_factor: Any, drawn: Drawn) -> Any:
    """The mean absolute percentage error of predicted seconds, over the targets that were measured."""
    off = torch.exp(log_factor - torch.from_numpy(drawn.log_factor)) - 1.0
    return off.abs()[torch.from_numpy(drawn.measured)].mean()


class Learning:
    """Adam with a penalty on squared weights and short gradients, slowing down along a cosine to a stop."""

    def __init__(self, torch: Any, groups: Sequence[Mapping[str, Any]], rate: float, steps: int) -> None:
        self.optimizer = torch.optim.Adam(groups, rate, fused=True)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, max(1, steps))
        self.weights = [weight for group in groups for weight in group["params"]]
        self.cut = torch.nn.utils.clip_grad_norm_

    def step(self, loss: Any, longest: float) -> None:
        """Descend once; the gradient is cut to the length `longest`."""
        self.optimizer.zero_grad()
        loss.backward()
        self.cut(self.weights, longest)
        self.optimizer.step()
        self.schedule.step()


@dataclass(frozen=True, slots=True)
class Sizeless:
    """A fully connected network from known runs and a target configuration to the time there.

    FLASH paper, appendix A.3, tables 2 and 3; what they do not say is marked. The network answers with the
    logarithm of the factor from the geometric mean of the known times to the target's, and its loss is the
    percentage error in seconds, which is the same for seconds and for factors: a network that answers in
    seconds would first have to learn to copy its input over four orders of magnitude. One network serves up
    to three known runs: each has a place among the inputs, nearest to the target first, 0 if there are fewer.
    """

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
        encoder = CaseEncoder.of(cases)
        return FittedSizeless(self, encoder, _train_sizeless(self, Stack.of(encoder, cases)))


@dataclass(frozen=True, slots=True, eq=False)
class FittedSizeless:
    options: Sizeless
    encoder: CaseEncoder
    network: Any

    def predict(self, case: Case, known: Rows) -> Array:
        torch = load_torch(self.options.name)
        batch = batch_of(self.encoder, case, known, self.options.places)
        with torch.no_grad():
            log_factor = self.network(torch.from_numpy(batch.inputs[0])).squeeze(-1).double().numpy()
        return np.asarray(np.exp(batch.level[0] + log_factor))


def _train_sizeless(options: Sizeless, stack: Stack) -> Any:
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


@dataclass(frozen=True, slots=True)
class Flash:
    """Known runs become an embedding, and the embedding an input of the base learner, which is Sizeless.

    FLASH paper, section 2 and appendix A.5, tables 3 and 6; what they do not say is marked. Its meta-learner
    is a bidirectional GRU over the known runs X_t = [x_t, y_t], settings and metrics with the time; its
    output is the mean over M sequences, here orders of the known runs, O_M = 1/M Σ H(I_m); a fully connected
    layer makes the embedding of it. Both learn together from episodes: a training case, some of its runs
    known, and others to predict.
    """

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
        encoder = CaseEncoder.of(cases)
        return FittedFlash(self, encoder, _train_flash(self, Stack.of(encoder, cases)))


@dataclass(frozen=True, slots=True, eq=False)
class FittedFlash:
    options: Flash
    encoder: CaseEncoder
    modules: Any

    def predict(self, case: Case, known: Rows) -> Array:
        torch = load_torch(self.options.name)
        batch = batch_of(self.encoder, case, known, self.options.places)
        with torch.no_grad():
            embedding = self._embed(torch, batch)
            log_factor = _base(torch, self.modules, torch.from_numpy(batch.inputs), embedding)
        return np.asarray(np.exp(batch.level[0] + log_factor[0].double().numpy()))

    def embedding(self, case: Case, known: Rows) -> Array:
        """Embedding of the known runs of an application, whatever their order."""
        torch = load_torch(self.options.name)
        batch = batch_of(self.encoder, case, known, self.options.places)
        with torch.no_grad():
            return np.asarray(self._embed(torch, batch)[0].double().numpy())

    def _embed(self, torch: Any, batch: EpisodeBatch) -> Any:
        orders = _orders(batch.seen.shape[1], self.options.sequences)
        return _embed(torch, self.modules, torch.from_numpy(batch.seen[:, orders]))


def _orders(count: int, most: int) -> NDArray[np.intp]:
    """All orders of so many, or `most` at random, but always the same."""
    if factorial(count) <= most:
        return np.array(list(permutations(range(count))), dtype=np.intp)
    random = np.random.default_rng(0)
    return np.array([random.permutation(count) for _ in range(most)], dtype=np.intp)


def _modules(torch: Any, options: Flash, encoder: CaseEncoder) -> Any:
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


def _train_flash(options: Flash, stack: Stack) -> Any:
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
