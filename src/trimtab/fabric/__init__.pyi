from .advice import (
    ASSUMED as ASSUMED,
    Advice as Advice,
    Assumption as Assumption,
    Failures as Failures,
    Losses as Losses,
    Question as Question,
)
from .advisor import advice_decision as advice_decision, advise as advise, catalog_price as catalog_price
from .agent import (
    Agent as Agent,
    Sessions as Sessions,
    Status as Status,
    agent_of as agent_of,
    agent_runs as agent_runs,
    exposition as exposition,
    fabrics_here as fabrics_here,
    parse_status as parse_status,
    plain_status as plain_status,
    read_status as read_status,
    sessions_of as sessions_of,
)
from .apply import (
    apply_plan as apply_plan,
    commands as commands,
    plan_here as plan_here,
    put_up as put_up,
    put_up_commands as put_up_commands,
    take_down as take_down,
    undo as undo,
    undo_commands as undo_commands,
)
from .failover.keeper import Failover as Failover
from .frr.daemons import find_programs as find_programs
from .host_file import host_of as host_of, read_host as read_host
from .lab.faults import Cycle as Cycle
from .lab.lab import (
    Lab as Lab,
    UplinkState as UplinkState,
    instructions as instructions,
    uplink_states as uplink_states,
)
from .lab.probes import Probes as Probes, busiest_uplink as busiest_uplink
from .plan import HostPlan as HostPlan
from .reconcile.bpf_plane import bpf_unavailable as bpf_unavailable
from .reconcile.flower_plane import flower_unavailable as flower_unavailable
from .reconcile.reconciler import PLANES as PLANES, Reconciler as Reconciler, reconciler_of as reconciler_of
from .topology import (
    Echo as Echo,
    FabricHost as FabricHost,
    TenantNetwork as TenantNetwork,
    Timers as Timers,
    Uplink as Uplink,
    VirtualFunction as VirtualFunction,
    WorkerDevice as WorkerDevice,
)
