"""CloudBandit's measurements: 30 Dask workloads on 82 configurations of three anonymised providers.

A workload is `<data set>-<task>`; the task is the application, so all its data sets are left out together.
"""

import math
from pathlib import Path

import numpy as np

from trimtab.predict.fewshot.case import Corpus
from trimtab.predict.fewshot.rows import Rows
from trimtab.predict.fewshot.schema import Array, metrics_table, settings_table
from trimtab.predict.fewshot.table import Table, find, read_table

_CODES = ("A_family", "A_vcpu", "B_family", "B_vcpu", "C_family", "C_type", "C_vcpu")
_COLUMNS = ("provider", *_CODES, "nodes", "workload", "target_cost", "target_runtime", "status")

# The CPUs have codes too: 0, and 1 at twice the price. The study rented machines of 2 and of 4.
_FEWEST_CPUS = 2.0


def read(folder: Path, completed_only: bool = False) -> Corpus:
    """Every workload, repeated runs averaged. The seconds of a failed run are when it failed.

    `completed_only` leaves failed runs out before averaging, and with them what never completed.
    """
    table = read_table(find(folder, "multicloud", "multi-cloud-configuration.csv"), _COLUMNS)
    if completed_only:
        table = table.only(np.array(table.columns["status"]) == "ok", "whose status is ok")
    seconds, nodes = table.positive("target_runtime"), table.positive("nodes")
    hourly = table.positive("target_cost") / seconds / nodes * 3600.0
    workloads = table.text("workload")
    return Rows(
        application=[w.partition("-")[2] or w for w in workloads],
        name=workloads,
        environment=("cloud",) * len(table),
        configuration=_configurations(table),
        settings=_settings(table, nodes, hourly),
        metrics=metrics_table(len(table)),
        seconds=seconds,
        ok=np.array(table.columns["status"]) == "ok",
        data=[w.partition("-")[0] for w in workloads],
    ).corpus("multicloud")


def _configurations(table: Table) -> list[str]:
    codes = zip(*(table.numbers(column).tolist() for column in _CODES), strict=True)
    rows = zip(table.text("provider"), codes, table.positive("nodes"), strict=True)
    return [
        " ".join(
            (
                provider,
                *(f"{name[2:]}={c:g}" for name, c in zip(_CODES, given, strict=True) if not math.isnan(c)),
                f"nodes={nodes:g}",
            )
        )
        for provider, given, nodes in rows
    ]


def _settings(table: Table, nodes: Array, hourly: Array) -> Array:
    for row, letter in enumerate(table.text("provider")):
        if letter not in ("A", "B", "C"):
            raise table.error(row, "provider", f"{letter!r} is not A, B or C")
    family = _code(table, "A_family", "B_family", "C_family")
    cpus = _code(table, "A_vcpu", "B_vcpu", "C_vcpu")
    kind = _code(table, "C_type")
    provider = np.array(table.columns["provider"])
    return settings_table(
        len(table),
        cpus=_FEWEST_CPUS * (1.0 + cpus),
        nodes=nodes,
        price_per_hour=hourly,
        accelerators=0.0,
        provider_a=provider == "A",
        provider_b=provider == "B",
        provider_c=provider == "C",
        family_1=family == 1,
        family_2=family == 2,
        type_1=kind == 1,
        type_2=kind == 2,
    )


def _code(table: Table, *columns: str) -> Array:
    """The code in whichever column has one: each provider has its own; 0 where none has."""
    return np.asarray(np.nansum([table.numbers(column) for column in columns], axis=0))
