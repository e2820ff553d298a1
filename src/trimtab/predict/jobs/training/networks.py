"""The thesis' networks (section 4.3.2, figures 4.2 and 4.3, table 4.3), in PyTorch.

Dense layers read what is static; a bidirectional LSTM and a dense layer read each of CPU, memory and network
over time; what they make of it is joined and goes through dense layers to one number. The text does not say
how wide layers are: "2-3 layers in both stages" is all, so widths are chosen here.

Targets are divided by their mean over the training rows, so that the output, a ReLU, is around one whatever
a dollar or an hour is; its bias starts at one, lest it start dead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from trimtab.core import MissingDependencyError
from trimtab.predict.fewshot import Array
from trimtab.predict.jobs.training.features import Encoder, Features
from trimtab.predict.jobs.training.labels import top_labels
from trimtab.predict.jobs.training.local_runs import Local
from trimtab.predict.jobs.training.table import Points

_STREAMS = ((0,), (1,), (2, 3))  # series that are read together: CPU, memory, network in and out
_SMALLEST = 1e-6  # of an output under a logarithm


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """One of the four networks; what the thesis does not say is marked."""

    objective: str
    """Cost or time."""
    loss: str
    """Huber, Poisson, or binary cross-entropy for a classifier."""
    learning_rate: float
    """Of Adam."""
    normalised: tuple[str, ...]
    """Stages with batch normalisation after their dense layers: static, series, joined."""
    joined: tuple[int, ...]
    """Widths of the dense layers after joining (widths not in the thesis; one more for time)."""
    static: tuple[int, ...] = (64, 32)
    """Widths of the dense layers of the static features (not in the thesis)."""
    recurrent: int = 16
    """Width of an LSTM in each direction (not in the thesis)."""
    series: int = 16
    """Width of the dense layer after an LSTM (not in the thesis)."""
    batch: int = 32
    """Rows in a step."""
    epochs: int = 400
    """How often every row is seen."""
    huber_delta: float = 1.0
    """Where Huber's loss turns from squares to lines."""

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

    def answers(self, training: Points, asked: Points, local: Local) -> Array:
        """A value, or the log odds of a top configuration, for every row of `asked`."""
        torch = _torch()
        settings, encoder = self.settings, Encoder.of(training, local)
        targets, scale = _targets(settings, training)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                network = _trained(torch, settings, encoder.encode(training, local), targets)
                with torch.no_grad():
                    found = network(*_tensors(torch, encoder.encode(asked, local)))
        finally:
            torch.set_num_threads(threads)
        return np.asarray(found.double().numpy() * scale)


def _targets(settings: NetworkSettings, training: Points) -> tuple[Array, float]:
    """What the network learns, and what one of it is worth."""
    if settings.classifies:
        return top_labels(training, settings.objective).astype(float), 1.0
    values = training.target(settings.objective)
    return values / values.mean(), float(values.mean())


def _trained(torch: Any, settings: NetworkSettings, features: Features, targets: Array) -> Any:
    network = _network(torch, settings, features.static.shape[1])
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate, fused=True)
    loss = _loss(torch, settings)
    static, series, job = _tensors(torch, features)
    wanted = torch.tensor(targets, dtype=torch.float32)
    for _ in range(settings.epochs):
        for rows in torch.randperm(len(wanted)).split(settings.batch):
            if len(rows) == 1:  # has no deviation to normalise by
                continue
            optimizer.zero_grad()
            loss(network(static[rows], series, job[rows]), wanted[rows]).backward()
            optimizer.step()
    return network.eval()


def _network(torch: Any, settings: NetworkSettings, columns: int) -> Any:
    """The module; a classifier's ends before the sigmoid, which the loss contains.

    Far from what it was trained on, a sigmoid is 0 or 1 for all rows alike; log odds still rank them.
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


def _loss(torch: Any, settings: NetworkSettings) -> Any:
    if settings.loss == "huber":
        return torch.nn.HuberLoss(delta=settings.huber_delta)
    if settings.loss == "poisson":
        return torch.nn.PoissonNLLLoss(log_input=False, eps=_SMALLEST)
    return torch.nn.BCEWithLogitsLoss()


def _tensors(torch: Any, features: Features) -> tuple[Any, Any, Any]:
    return (
        torch.tensor(features.static, dtype=torch.float32),
        torch.tensor(features.series, dtype=torch.float32),
        torch.tensor(features.job),
    )


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(
            "the thesis' networks need PyTorch: pip install 'trimtab[learn]'"
        ) from None
    return torch
