from .facts import Facts as Facts, read_facts as read_facts
from .gpu import Gpus as Gpus
from .host import usable_cpus as usable_cpus, usable_memory as usable_memory
from .host_speed import HostSpeed as HostSpeed
from .interrupts import Interrupts as Interrupts
from .listening import Listening as Listening, sweep_folders as sweep_folders
from .profile_file import load_profile as load_profile, save_profile as save_profile
from .profiler import Progress as Progress, Settings as Settings, name_of as name_of, profile as profile
from .run import CommandError as CommandError
