from . import rtnetlink as rtnetlink
from .bpf import (
    BpfMap as BpfMap,
    LoadedPrograms as LoadedPrograms,
    number_of as number_of,
    program_of_id as program_of_id,
    run_program as run_program,
)
from .cgroup import CpuCounters as CpuCounters
from .clock import SteadyClock as SteadyClock, seconds_since_boot as seconds_since_boot
from .closing import Closing as Closing
from .container import (
    ContainerGroup as ContainerGroup,
    CpuRefusedError as CpuRefusedError,
    GroupBusyError as GroupBusyError,
    GroupGoneError as GroupGoneError,
    GroupRefusedError as GroupRefusedError,
)
from .deadman import DeadManSwitch as DeadManSwitch, keep_watch as keep_watch
from .files import (
    BackgroundWriter as BackgroundWriter,
    LockHeldError as LockHeldError,
    allow_many_files as allow_many_files,
    check_writable as check_writable,
    drop_head as drop_head,
    file_lock as file_lock,
    is_locked as is_locked,
    open_untrusted as open_untrusted,
    read_user_file as read_user_file,
    read_yaml as read_yaml,
    write_whole as write_whole,
)
from .group import (
    Group as Group,
    LimitedGroup as LimitedGroup,
    NoGroupError as NoGroupError,
    cpu_limit as cpu_limit,
    memory_limit as memory_limit,
    sweep_groups as sweep_groups,
)
from .group_tree import FolderWatch as FolderWatch, GroupTree as GroupTree
from .hierarchy import Hierarchy as Hierarchy, find_hierarchy as find_hierarchy, mounted as mounted
from .memory_trap import (
    MemoryTraps as MemoryTraps,
    least_limit as least_limit,
    limit_high as limit_high,
    untrap as untrap,
)
from .network_namespace import NetworkNamespace as NetworkNamespace, NoNamespaceError as NoNamespaceError
from .process import (
    Owner as Owner,
    Process as Process,
    adopt_orphans as adopt_orphans,
    boot_id as boot_id,
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
from .release_helper import ReleaseHelper as ReleaseHelper, restore_released as restore_released
from .safe_limits import (
    LimitJournal as LimitJournal,
    RestoredLimits as RestoredLimits,
    SafeLimits as SafeLimits,
    journal_folder as journal_folder,
    journals as journals,
    restore_journal as restore_journal,
    restore_orphans as restore_orphans,
)
