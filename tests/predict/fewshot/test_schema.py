import numpy as np
import pytest

from trimtab.core import BadInputError
from trimtab.predict.fewshot.schema import (
    METRIC_MEANINGS,
    METRICS,
    SCALES,
    SETTINGS,
    SWITCHES,
    metrics_table,
    settings_table,
)


def test_every_column_says_what_it_is_in_one_line() -> None:
    for meaning in (SCALES | SWITCHES | METRIC_MEANINGS).values():
        assert meaning
        assert "\n" not in meaning
    assert len(set(SETTINGS)) == len(SETTINGS)
    assert len(set(METRICS)) == len(METRICS)


def test_what_is_not_given_is_unknown() -> None:
    table = settings_table(2, cpus=[1, 2])
    assert table.shape == (2, len(SETTINGS))
    assert table[:, SETTINGS.index("cpus")].tolist() == [1.0, 2.0]
    assert np.isnan(np.delete(table, SETTINGS.index("cpus"), axis=1)).all()
    assert metrics_table(3).shape == (3, len(METRICS))


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(BadInputError, match="no column 'colour'; the columns are memory_bytes"):
        settings_table(1, colour=1.0)
