"""Rounds to ask policies about, from a few words per job."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from trimtab.schedule import Cluster, JobColumns

RoundOf = Callable[[Cluster, Sequence[Mapping[str, Any]]], JobColumns]


def _round_of(cluster: Cluster, rows: Sequence[Mapping[str, Any]]) -> JobColumns:
    """Jobs from dictionaries of columns. `speed` is of one worker in each group, and `tenant` a name."""
    count, groups = len(rows), len(cluster.groups)
    usual: dict[str, Any] = {
        "submitted": 0.0,
        "priority": 0.0,
        "deadline": np.inf,
        "hard": False,
        "least": 1,
        "gpus": 1.0,
        "cpus": 1.0,
        "memory": 0.0,
        "remaining": np.nan,
        "remaining_low": np.nan,
        "remaining_high": np.nan,
        "budget": np.inf,
        "preemptible": True,
    }
    whole = {"least", "most", "restarts", "tenant"}
    columns: dict[str, Any] = {}
    for field in fields(JobColumns):
        values = [row.get(field.name, usual.get(field.name, 0)) for row in rows]
        kind = (
            bool
            if field.name in ("hard", "settling", "preemptible")
            else np.int64
            if field.name in whole
            else float
        )
        if field.name in ("held", "fetch", "egress"):
            columns[field.name] = np.zeros((count, groups))
        elif field.name not in ("ids", "tenants", "tenant", "most", "speed"):
            columns[field.name] = np.array(values, dtype=kind)
    names = [row.get("tenant", "us") for row in rows]
    columns["tenants"] = tuple(dict.fromkeys(names))
    columns["tenant"] = np.array([columns["tenants"].index(name) for name in names], dtype=np.int64)
    columns["ids"] = tuple(str(row.get("id", f"job-{index}")) for index, row in enumerate(rows))
    columns["most"] = np.array([row.get("most", row.get("least", 1)) for row in rows], dtype=np.int64)
    each = np.array([row.get("speed", [1.0] * groups) for row in rows], dtype=float).reshape(count, groups)
    columns["speed"] = each[:, cluster.shape_group] * cluster.shape_workers
    return JobColumns(**columns)


@pytest.fixture(scope="session")
def round_of() -> RoundOf:
    return _round_of
