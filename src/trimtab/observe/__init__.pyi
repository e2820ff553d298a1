from .listening import (
    ListenerFacts as ListenerFacts,
    ListenerFolder as ListenerFolder,
    read_facts as read_facts,
    sweep_folders as sweep_folders,
    trace_model as trace_model,
)
from .profile_file import load_profile as load_profile, save_profile as save_profile
from .profiler import (
    FakeRunError as FakeRunError,
    Gpus as Gpus,
    HostSpeed as HostSpeed,
    ProfilerSettings as ProfilerSettings,
    Progress as Progress,
    model_command as model_command,
    name_of as name_of,
    profile as profile,
    profile_by_threads as profile_by_threads,
    usable_cpus as usable_cpus,
    usable_memory as usable_memory,
)
from .run import CommandError as CommandError, Interrupts as Interrupts
