from .agent import Agent as Agent, Grant as Grant
from .controller import Controller as Controller, Limits as Limits
from .discovery import Discovery as Discovery, containers as containers
from .journal import Journal as Journal
from .kubelet import KubeletGroup as KubeletGroup, kubelet_group as kubelet_group
from .kubernetes import PodWatch as PodWatch, kubernetes_find as kubernetes_find
from .link.joining import Membership as Membership, join as join
from .link.remote import RemoteAgent as RemoteAgent
from .link.serving import Serving as Serving, new_token as new_token, serve as serve
from .link.token import Token as Token
from .memory import (
    MemorySettings as MemorySettings,
    granted as granted,
    reclaimed as reclaimed,
    urgently_reclaimed as urgently_reclaimed,
)
from .metrics import exposition as exposition, metrics_server as metrics_server
from .node import Node as Node
from .period import PERIOD as PERIOD
from .pod_resize import ContainerSize as ContainerSize, Resized as Resized, resize_pod as resize_pod
from .policies import POLICIES as POLICIES
from .policies.autopilot import Autopilot as Autopilot, AutopilotSettings as AutopilotSettings
from .policies.escra import Escra as Escra, EscraSettings as EscraSettings
from .policies.policy import CpuPeriod as CpuPeriod, CpuPolicy as CpuPolicy, Wishes as Wishes
from .policies.static import Static as Static
from .policies.tracking import Tracking as Tracking
from .policies.vpa import Vpa as Vpa, VpaSettings as VpaSettings
from .pool import (
    Container as Container,
    Pool as Pool,
    Selector as Selector,
    owner as owner,
    read_pools as read_pools,
)
from .sharing import fair_limits as fair_limits, floors_within as floors_within, grown as grown
from .status import (
    Status as Status,
    read_status as read_status,
    status_of as status_of,
    write_status as write_status,
)
