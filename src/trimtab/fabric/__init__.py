"""How does the traffic survive a dead link? One virtual device over two uplinks, and who moves it."""

from trimtab.fabric.host_file import host_of, read_host
from trimtab.fabric.topology import Host, Tenant, Timers, Uplink, VirtualFunction, WorkerDevice

__all__ = ["Host", "Tenant", "Timers", "Uplink", "VirtualFunction", "WorkerDevice", "host_of", "read_host"]
