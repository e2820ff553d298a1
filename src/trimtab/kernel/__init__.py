"""How do we talk to Linux? cgroups v1 and v2 and `/proc`: the one place that knows their file formats."""

from trimtab.kernel.aside import WrittenAside
from trimtab.kernel.container import (
    ContainerGroup,
    CpuCounters,
    CpuRefusedError,
    GroupBusyError,
    GroupGoneError,
    GroupRefusedError,
)
from trimtab.kernel.deadman import DeadManSwitch, SafeLimits, keep_watch
from trimtab.kernel.files import allow_many_files, check_writable, held_alone, is_held, read_yaml, write_whole
from trimtab.kernel.folder_watch import FolderWatch
from trimtab.kernel.group import Group, NoGroupError, sweep_groups
from trimtab.kernel.group_tree import GroupTree
from trimtab.kernel.hierarchy import Hierarchy, find_hierarchy, mounted
from trimtab.kernel.limited_group import LimitedGroup
from trimtab.kernel.limits import cpu_limit, memory_limit
from trimtab.kernel.memory_trap import MemoryTraps, least_limit, limit_high, untrap
from trimtab.kernel.network_namespace import NetworkNamespace, NoNamespaceError
from trimtab.kernel.owner import Owner
from trimtab.kernel.process import (
    Process,
    die_with_parent,
    end_groups,
    environment,
    network_bytes,
    process_io,
    process_names,
    processes,
    read_process,
    thread_waits,
    tree,
)

__all__ = [
    "ContainerGroup",
    "CpuCounters",
    "CpuRefusedError",
    "DeadManSwitch",
    "FolderWatch",
    "Group",
    "GroupBusyError",
    "GroupGoneError",
    "GroupRefusedError",
    "GroupTree",
    "Hierarchy",
    "LimitedGroup",
    "MemoryTraps",
    "NetworkNamespace",
    "NoGroupError",
    "NoNamespaceError",
    "Owner",
    "Process",
    "SafeLimits",
    "WrittenAside",
    "allow_many_files",
    "check_writable",
    "cpu_limit",
    "die_with_parent",
    "end_groups",
    "environment",
    "find_hierarchy",
    "held_alone",
    "is_held",
    "keep_watch",
    "least_limit",
    "limit_high",
    "memory_limit",
    "mounted",
    "network_bytes",
    "process_io",
    "process_names",
    "processes",
    "read_process",
    "read_yaml",
    "sweep_groups",
    "thread_waits",
    "tree",
    "untrap",
    "write_whole",
]
