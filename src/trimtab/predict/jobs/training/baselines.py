"""What a practitioner would try first, on the thesis' features in one flat table (section 4.5.2)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.core import MissingDependencyError
from trimtab.predict.fewshot import Array
from trimtab.predict.jobs.training.features import Encoder, Features
from trimtab.predict.jobs.training.labels import top_labels
from trimtab.predict.jobs.training.local_runs import Local
from trimtab.predict.jobs.training.table import Points


@dataclass(frozen=True, slots=True)
class Baseline:
    """A library's model, made anew for each training; `logs`: it learns logarithms of dollars or seconds."""

    name: str
    make: Callable[[int], Any]
    logs: bool = False
    seed: int = 0

    def answers(self, training: Points, asked: Points, local: Local, objective: str) -> Array:
        """Dollars or seconds for every row of `asked`."""
        encoder = Encoder.of(training, local)
        model = _made(self.make, self.seed)
        values = training.target(objective)
        scale = values.mean()
        model.fit(encoder.encode(training, local).flat, np.log(values) if self.logs else values / scale)
        found = np.asarray(model.predict(encoder.encode(asked, local).flat))
        return np.asarray(np.exp(found) if self.logs else found * scale)


@dataclass(frozen=True, slots=True)
class ForestClassifier:
    """The thesis' other classifier of top configurations."""

    name: str = "random forest"
    seed: int = 0

    def answers(self, training: Points, asked: Points, local: Local, objective: str) -> Array:
        """How likely every row of `asked` is a top one."""
        encoder = Encoder.of(training, local)
        model = _made(_classifier, self.seed)
        model.fit(encoder.encode(training, local).flat, top_labels(training, objective))
        return np.asarray(model.predict_proba(encoder.encode(asked, local).flat)[:, 1])


def fitted_forest(points: Points, local: Local, objective: str, classify: bool) -> tuple[Any, Features]:
    """A random forest on all these points, for top configurations or for dollars or seconds."""
    features = Encoder.of(points, local).encode(points, local)
    model = _made(_classifier if classify else _forest, 0)
    model.fit(features.flat, top_labels(points, objective) if classify else points.target(objective))
    return model, features


def _linear(seed: int) -> Any:
    from sklearn.linear_model import Ridge

    # Series of few jobs are collinear; so small a penalty only makes the answer unique.
    return Ridge(alpha=1e-3)


def _poisson(seed: int) -> Any:
    from sklearn.linear_model import PoissonRegressor

    return PoissonRegressor(alpha=1e-3, max_iter=2000)


def _forest(seed: int) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(300, max_features=0.5, random_state=seed, n_jobs=1)


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
    Baseline("random forest", _forest),
    Baseline("random forest, log", _forest, logs=True),
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
