from .aside import WrittenAside as WrittenAside
from .container import (
    ContainerGroup as ContainerGroup,
    CpuCounters as CpuCounters,
    CpuRefusedError as CpuRefusedError,
    GroupBusyError as GroupBusyError,
    GroupGoneError as GroupGoneError,
    GroupRefusedError as GroupRefusedError,
)
from .deadman import DeadManSwitch as DeadManSwitch, SafeLimits as SafeLimits, keep_watch as keep_watch
from .files import (
    allow_many_files as allow_many_files,
    check_writable as check_writable,
    held_alone as held_alone,
    is_held as is_held,
    read_user_file as read_user_file,
    read_yaml as read_yaml,
    write_whole as write_whole,
)
from .folder_watch import FolderWatch as FolderWatch
from .group import Group as Group, NoGroupError as NoGroupError, sweep_groups as sweep_groups
from .group_tree import GroupTree as GroupTree
from .hierarchy import Hierarchy as Hierarchy, find_hierarchy as find_hierarchy, mounted as mounted
from .limited_group import LimitedGroup as LimitedGroup
from .limits import cpu_limit as cpu_limit, memory_limit as memory_limit
from .memory_trap import (
    MemoryTraps as MemoryTraps,
    least_limit as least_limit,
    limit_high as limit_high,
    untrap as untrap,
)
from .network_namespace import NetworkNamespace as NetworkNamespace, NoNamespaceError as NoNamespaceError
from .owner import Owner as Owner
from .process import (
    Process as Process,
    die_with_parent as die_with_parent,
    end_groups as end_groups,
    environment as environment,
    network_bytes as network_bytes,
    process_io as process_io,
    process_names as process_names,
    processes as processes,
    read_process as read_process,
    thread_waits as thread_waits,
    tree as tree,
)
