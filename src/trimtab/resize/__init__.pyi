from .above import KubeletGroup as KubeletGroup, kubelet_group as kubelet_group
from .agent import Grant as Grant, GrantJournal as GrantJournal, NodeAgent as NodeAgent
from .allocation import (
    MemorySettings as MemorySettings,
    fair_limits as fair_limits,
    floors_within as floors_within,
    granted as granted,
    grown as grown,
    reclaimed as reclaimed,
    urgently_reclaimed as urgently_reclaimed,
)
from .controller import Controller as Controller, SlotLimits as SlotLimits
from .discovery import Discovery as Discovery, containers as containers
from .kubernetes import (
    ContainerSize as ContainerSize,
    PodWatch as PodWatch,
    Resized as Resized,
    kubernetes_find as kubernetes_find,
    resize_pod as resize_pod,
)
from .link.certificates import JoinToken as JoinToken
from .link.joining import Membership as Membership, join as join
from .link.remote import RemoteAgent as RemoteAgent
from .link.server import RunningController as RunningController, new_token as new_token, serve as serve
from .member import PERIOD as PERIOD
from .metrics import metrics_server as metrics_server
from .node import NodeMembers as NodeMembers
from .policies import POLICIES as POLICIES
from .policies.autopilot import Autopilot as Autopilot, AutopilotSettings as AutopilotSettings
from .policies.escra import Escra as Escra, EscraSettings as EscraSettings
from .policies.policy import (
    CpuPeriod as CpuPeriod,
    CpuPolicy as CpuPolicy,
    Static as Static,
    Wishes as Wishes,
)
from .policies.tracking import Tracking as Tracking
from .policies.vpa import Vpa as Vpa, VpaSettings as VpaSettings
from .pool import (
    Container as Container,
    Pool as Pool,
    Selector as Selector,
    owner as owner,
    read_pools as read_pools,
)
from .status import (
    PoolStatus as PoolStatus,
    read_status as read_status,
    status_of as status_of,
    write_status as write_status,
)
