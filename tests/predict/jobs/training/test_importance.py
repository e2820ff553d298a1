"""What answers rest on."""

import pytest

from trimtab.predict.jobs.training import GROUPS, DataSet, forest_importance, our_importance
from trimtab.predict.jobs.training.coordinates import SHARED

pytest.importorskip("sklearn", reason="the forest needs scikit-learn")


@pytest.mark.parametrize("classify", [False, True])
def test_parts_of_the_forest_sum_to_one_by_feature_and_by_group(data: DataSet, classify: bool) -> None:
    found = forest_importance(data.points, data.local, "cost", classify)
    assert sum(found.features.values()) == pytest.approx(1.0)
    assert sum(found.groups.values()) == pytest.approx(1.0)
    assert tuple(found.groups) == GROUPS
    assert list(found.features.values()) == sorted(found.features.values(), reverse=True)
    assert found.groups["infrastructure"] > found.groups["local memory"]


def test_ours_names_every_coordinate(data: DataSet) -> None:
    assert set(our_importance(data.points, data.local).features) == set(SHARED)
