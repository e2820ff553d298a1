"""What does the routing software run with? FRR's configuration and daemons, in a folder of their own."""

from trimtab.fabric.frr.configuration import Port, Switch, host_files, switch_files
from trimtab.fabric.frr.daemons import Daemons, remove_crash_folder
from trimtab.fabric.frr.programs import DAEMONS, Programs, find_programs
from trimtab.fabric.frr.seal import check_untouched, sealed

__all__ = [
    "DAEMONS",
    "Daemons",
    "Port",
    "Programs",
    "Switch",
    "check_untouched",
    "find_programs",
    "host_files",
    "remove_crash_folder",
    "sealed",
    "switch_files",
]
