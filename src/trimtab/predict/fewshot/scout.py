"""Scout's measurements on EC2: Hadoop and Spark programs, with what sar saw of each run.

`read` has 18 workloads on 69 clusters of 4 to 48 machines, `read_single_node` 117 on 18 single machines. A
workload is a program, a framework and a size of data; the program is the application.
"""

from pathlib import Path

import numpy as np

from trimtab.predict.fewshot.case import Corpus
from trimtab.predict.fewshot.rows import Rows
from trimtab.predict.fewshot.schema import Array, Flags, metrics_table, settings_table
from trimtab.predict.fewshot.table import Table, find, read_table

_COLUMNS = (
    "vm", "vm_vcpus", "vm_mem_gib", "vm_price_usd_h", "workload", "framework", "datasize", "completed",
    "elapsed_s", "timestamp", "cpu_pct_usr_mean", "cpu_pct_sys_mean", "cpu_pct_iowait_mean",
    "task_cswch_per_s_mean", "disk_rd_sec_per_s_mean", "disk_wr_sec_per_s_mean", "network_rxkB_per_s_mean",
    "network_txkB_per_s_mean", "paging_majflt_per_s_mean", "disk_pct_util_mean", "memory_kbmemused_mean",
    "memory_pct_memused_mean",
)  # fmt: skip

_GIB = 2.0**30
_KIB = 1024.0
_SECTOR = 512.0

# Two campaigns measured HiBench on single machines and disagree, up to 18 times; only in the second did the
# name of a data size always mean the same bytes. What ran on Spark 1.5 was measured well both times.
_SECOND_CAMPAIGN = "2017-09-24"
_SOUND_FRAMEWORK = "spark1.5"


def read(folder: Path) -> Corpus:
    """The clusters. A failed run is kept, not ok, with the seconds after which it ended."""
    table = read_table(find(folder, "scout", "scout_multi_node.csv"), ("n_nodes", *_COLUMNS))
    return _corpus("scout", table, table.flags("completed"), table.positive("n_nodes"))


def read_single_node(folder: Path) -> Corpus:
    """The single machines: completed runs of the campaign that can be trusted, repeats averaged."""
    table = read_table(find(folder, "scout", "scout_single_node.csv"), _COLUMNS)
    trusted = (np.array(table.columns["framework"]) == _SOUND_FRAMEWORK) | (
        np.array(table.columns["timestamp"]) >= _SECOND_CAMPAIGN
    )
    table = table.only(table.flags("completed") & trusted, "that completed in a campaign to trust")
    return _corpus("scout-single", table, np.ones(len(table), dtype=bool), np.ones(len(table)))


def _corpus(name: str, table: Table, ok: Flags, nodes: Array) -> Corpus:
    programs, machines = table.text("workload"), table.text("vm")
    cases = zip(programs, table.text("framework"), table.text("datasize"), strict=True)
    return Rows(
        application=programs,
        name=["-".join(case) for case in cases],
        environment=("ec2",) * len(table),
        configuration=[f"{vm} nodes={n:g}" for vm, n in zip(machines, nodes, strict=True)],
        settings=_settings(table, nodes),
        metrics=_metrics(table),
        seconds=table.positive("elapsed_s", ok),
        ok=ok,
        data=table.text("datasize"),
    ).corpus(name)


def _settings(table: Table, nodes: Array) -> Array:
    generations = []
    for row, machine in enumerate(table.text("vm")):
        digits = "".join(c for c in machine.partition(".")[0] if c.isdigit())
        if not digits:
            raise table.error(row, "vm", f"{machine!r} is not an instance type such as m4.large")
        generations.append(float(digits))
    return settings_table(
        len(table),
        memory_bytes=table.positive("vm_mem_gib") * _GIB,
        cpus=table.positive("vm_vcpus"),
        nodes=nodes,
        price_per_hour=table.positive("vm_price_usd_h"),
        accelerators=0.0,
        generation=generations,
    )


def _metrics(table: Table) -> Array:
    cpus = table.positive("vm_vcpus")
    return metrics_table(
        len(table),
        cpu_user=table.numbers("cpu_pct_usr_mean") / 100.0 * cpus,
        cpu_system=table.numbers("cpu_pct_sys_mean") / 100.0 * cpus,
        cpu_waiting=table.numbers("cpu_pct_iowait_mean") / 100.0 * cpus,
        context_switches=table.numbers("task_cswch_per_s_mean"),
        bytes_read=table.numbers("disk_rd_sec_per_s_mean") * _SECTOR,
        bytes_written=table.numbers("disk_wr_sec_per_s_mean") * _SECTOR,
        bytes_received=table.numbers("network_rxkB_per_s_mean") * _KIB,
        bytes_sent=table.numbers("network_txkB_per_s_mean") * _KIB,
        major_faults=table.numbers("paging_majflt_per_s_mean"),
        disk_busy=table.numbers("disk_pct_util_mean") / 100.0,
        memory_used=table.numbers("memory_kbmemused_mean") * _KIB,
        memory_fraction=table.numbers("memory_pct_memused_mean") / 100.0,
    )
