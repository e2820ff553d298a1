"""The thesis' networks and ordinary models, rivals of the model of training jobs.

Networks (section 4.3.2, figures 4.2 and 4.3, table 4.3): dense layers read the static features; a
bidirectional LSTM and a dense layer read each of CPU, memory and network over time; their outputs are joined
and go through dense layers to one number. The text does not say how wide layers are ("2-3 layers in both
stages" is all), so widths are chosen here. Targets are divided by their mean over the training rows, so that
the output, a ReLU, is around one whatever the unit; its bias starts at one, lest it start dead.

Ordinary models learn from the same features in one flat table (section 4.5.2).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError, MissingDependencyError
from trimtab.predict.fewshot.case import Array
from trimtab.predict.jobs.training_data import Local, Points
from trimtab.predict.jobs.training_importance import (
    FeatureEncoder,
    Features,
    Importance,
    importance_in,
    random_forest,
)
from trimtab_bench.fewshot_networks import load_torch

MOST = 5
WITHIN = 1.5  # times the best


def is_top(values: Array) -> NDArray[np.bool_]:
    """Top ones of a job's costs or times: among the five least, at most 1.5 times the least; never NaN."""
    known = ~np.isnan(values)
    if not known.any():
        return np.zeros(len(values), dtype=bool)
    order = np.argsort(np.where(known, values, np.inf), kind="stable")
    top = np.zeros(len(values), dtype=bool)
    top[order[:MOST]] = True
    return top & known & (values <= WITHIN * np.nanmin(values))


def top_labels(points: Points, objective: str) -> NDArray[np.bool_]:
    """Top configurations, every job ranked by itself."""
    values, job = points.target(objective), np.array(points.job)
    labels = np.zeros(len(points), dtype=bool)
    for name in points.jobs:
        labels[job == name] = is_top(values[job == name])
    return labels


def area_under_curve(labels: NDArray[np.bool_], scores: Array) -> float:
    """Area under the ROC curve: how often a top configuration has the higher score; ties count half."""
    positive, negative = scores[labels], scores[~labels]
    if not len(positive) or not len(negative):
        raise BadInputError("an area under the ROC curve needs configurations of both kinds")
    above = (positive[:, None] > negative).mean()
    return float(above + 0.5 * (positive[:, None] == negative).mean())


@dataclass(frozen=True, slots=True)
class Baseline:
    """A library's model, made anew for each training; `logs`: it learns logarithms of dollars or seconds."""

    name: str
    make: Callable[[int], Any]
    logs: bool = False
    seed: int = 0

    def answers(self, training: Points, tested: Points, local: Local, objective: str) -> Array:
        """Dollars or seconds for every row of `asked`."""
        encoder = FeatureEncoder.of(training, local)
        model = _made(self.make, self.seed)
        values = training.target(objective)
        scale = values.mean()
        model.fit(encoder.encode(training, local).flat, np.log(values) if self.logs else values / scale)
        predicted = np.asarray(model.predict(encoder.encode(tested, local).flat))
        return np.asarray(np.exp(predicted) if self.logs else predicted * scale)


@dataclass(frozen=True, slots=True)
class ForestClassifier:
    """The thesis' other classifier of top configurations."""

    name: str = "random forest"
    seed: int = 0

    def answers(self, training: Points, tested: Points, local: Local, objective: str) -> Array:
        """How likely every row of `asked` is a top one."""
        encoder = FeatureEncoder.of(training, local)
        model = _made(_classifier, self.seed)
        model.fit(encoder.encode(training, local).flat, top_labels(training, objective))
        return np.asarray(model.predict_proba(encoder.encode(tested, local).flat)[:, 1])


def top_importance(points: Points, local: Local, objective: str) -> Importance:
    """Importance in a random forest that learned which of all points that ran are top ones."""
    ran = points.only(points.ok)
    features = FeatureEncoder.of(ran, local).encode(ran, local)
    return importance_in(_made(_classifier, 0).fit(features.flat, top_labels(ran, objective)), features)


def _linear(seed: int) -> Any:
    from sklearn.linear_model import Ridge

    # Series of few jobs are collinear; so small a penalty only makes the answer unique.
    return Ridge(alpha=1e-3)


def _poisson(seed: int) -> Any:
    from sklearn.linear_model import PoissonRegressor

    return PoissonRegressor(alpha=1e-3, max_iter=2000)


def _classifier(seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(
        500, class_weight="balanced", min_samples_leaf=2, random_state=seed, n_jobs=1
    )


def _boosted(seed: int) -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(
        n_estimators=400,
        learning_rate=0.05,
        num_leaves=15,
        min_child_samples=5,
        random_state=seed,
        n_jobs=1,
        deterministic=True,
        force_row_wise=True,
        verbose=-1,
    )


_FOR_BOTH = (
    Baseline("linear regression, log", _linear, logs=True),
    Baseline("random forest", random_forest),
    Baseline("random forest, log", random_forest, logs=True),
    Baseline("LightGBM", _boosted),
    Baseline("LightGBM, log", _boosted, logs=True),
)
BASELINES = {
    "cost": (Baseline("linear regression", _linear), *_FOR_BOTH),
    "time": (Baseline("Poisson regression", _poisson), *_FOR_BOTH),
}
"""The thesis' three for each objective, and the same on logarithms."""


def _made(make: Callable[[int], Any], seed: int) -> Any:
    try:
        return make(seed)
    except ImportError as error:
        raise MissingDependencyError(f"{error.name} is missing: pip install 'trimtab[learn]'") from None


_STREAMS = ((0,), (1,), (2, 3))  # series that are read together: CPU, memory, network in and out
_SMALLEST = 1e-6  # of an output under a logarithm


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """One of the four networks; what the thesis does not say is marked."""

    objective: str  # cost or time
    loss: str  # Huber, Poisson, or binary cross-entropy for a classifier
    learning_rate: float  # Of Adam
    normalised: tuple[str, ...]
    """Stages with batch normalisation after their dense layers: static, series, joined."""
    joined: tuple[int, ...]
    """Widths of the dense layers after joining (widths not in the thesis; one more for time)."""
    static: tuple[int, ...] = (64, 32)
    """Widths of the dense layers of the static features (not in the thesis)."""
    recurrent: int = 16  # width of an LSTM in each direction (not in the thesis)
    series: int = 16  # width of the dense layer after an LSTM (not in the thesis)
    batch: int = 32  # rows in a step
    epochs: int = 400  # how often every row is seen
    huber_delta: float = 1.0  # where Huber's loss turns from squares to lines

    @property
    def classifies(self) -> bool:
        return self.loss == "cross-entropy"


COST = NetworkSettings("cost", "huber", 1e-4, (), (64, 32))
TIME = NetworkSettings("time", "poisson", 8e-4, ("static",), (64, 32, 16))
TOP_COST = NetworkSettings("cost", "cross-entropy", 1e-4, ("static", "series", "joined"), (64, 32))
TOP_TIME = NetworkSettings("time", "cross-entropy", 1e-4, ("static",), (64, 32, 16))


@dataclass(frozen=True, slots=True)
class ThesisNetwork:
    """Trained on measured rows, then asked about others: dollars, seconds, or log odds of a top one."""

    settings: NetworkSettings
    seed: int = 0

    name = "thesis network"

    def answers(self, training: Points, tested: Points, local: Local) -> Array:
        """A value, or the log odds of a top configuration, for every row of `asked`."""
        torch = load_torch("the thesis' network")
        settings, encoder = self.settings, FeatureEncoder.of(training, local)
        if settings.classifies:
            targets, scale = top_labels(training, settings.objective).astype(float), 1.0
        else:
            values = training.target(settings.objective)
            targets, scale = values / values.mean(), float(values.mean())
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                network = _trained(torch, settings, encoder.encode(training, local), targets)
                with torch.no_grad():
                    answers = network(*_tensors(torch, encoder.encode(tested, local)))
        finally:
            torch.set_num_threads(threads)
        return np.asarray(answers.double().numpy() * scale)


def _trained(torch: Any, settings: NetworkSettings, features: Features, targets: Array) -> Any:
    network = _network(torch, settings, features.static.shape[1])
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate, fused=True)
    losses = {
        "huber": torch.nn.HuberLoss(delta=settings.huber_delta),
        "poisson": torch.nn.PoissonNLLLoss(log_input=False, eps=_SMALLEST),
        "cross-entropy": torch.nn.BCEWithLogitsLoss(),
    }
    loss = losses[settings.loss]
    static, series, job = _tensors(torch, features)
    expected = torch.tensor(targets, dtype=torch.float32)
    for _ in range(settings.epochs):
        for rows in torch.randperm(len(expected)).split(settings.batch):
            if len(rows) == 1:  # has no deviation to normalise by
                continue
            optimizer.zero_grad()
            loss(network(static[rows], series, job[rows]), expected[rows]).backward()
            optimizer.step()
    return network.eval()


def _network(torch: Any, settings: NetworkSettings, columns: int) -> Any:
    """The module; a classifier's ends before the sigmoid, which the loss contains.

    Far from its training data, a sigmoid is 0 or 1 for all rows alike; log odds still rank them.
    """
    nn = torch.nn

    def dense(stage: str, widths: Sequence[int]) -> Any:
        layers = []
        for entering, leaving in pairwise(widths):
            layers += [nn.Linear(entering, leaving), nn.ReLU()]
            layers += [nn.BatchNorm1d(leaving)] if stage in settings.normalised else []
        return nn.Sequential(*layers)

    class Network(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.static = dense("static", (columns, *settings.static))
            self.recurrent = nn.ModuleList(
                nn.LSTM(len(stream), settings.recurrent, batch_first=True, bidirectional=True)
                for stream in _STREAMS
            )
            self.series = nn.ModuleList(
                dense("series", (2 * settings.recurrent, settings.series)) for _ in _STREAMS
            )
            joined = settings.static[-1] + len(_STREAMS) * settings.series
            self.joined = dense("joined", (joined, *settings.joined))
            self.last = nn.Linear(settings.joined[-1], 1)
            if not settings.classifies:
                nn.init.ones_(self.last.bias)

        def forward(self, static: Any, series: Any, job: Any) -> Any:
            parts = [self.static(static)]
            for stream, recurrent, after in zip(_STREAMS, self.recurrent, self.series, strict=True):
                _, (last, _) = recurrent(series[:, :, list(stream)])
                parts.append(after(torch.cat([last[0], last[1]], dim=1)[job]))
            out = self.last(self.joined(torch.cat(parts, dim=1))).squeeze(1)
            return out if settings.classifies else torch.relu(out)

    return Network()


def _tensors(torch: Any, features: Features) -> tuple[Any, Any, Any]:
    return (
        torch.tensor(features.static, dtype=torch.float32),
        torch.tensor(features.series, dtype=torch.float32),
        torch.tensor(features.job),
    )
