from .host import (
    Gpus as Gpus,
    HostSpeed as HostSpeed,
    usable_cpus as usable_cpus,
    usable_memory as usable_memory,
)
from .listening import (
    ListenerFacts as ListenerFacts,
    ListenerFolder as ListenerFolder,
    read_facts as read_facts,
    sweep_folders as sweep_folders,
)
from .profile_file import load_profile as load_profile, save_profile as save_profile
from .profiler import (
    ProfilerSettings as ProfilerSettings,
    Progress as Progress,
    name_of as name_of,
    profile as profile,
)
from .run import CommandError as CommandError, Interrupts as Interrupts
