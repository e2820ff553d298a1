"""What do we talk about? The vocabulary, units, errors and time. No I/O."""

from trimtab.core.address import is_loopback, split_address
from trimtab.core.checkpoint_rules import daly_interval, young_interval
from trimtab.core.clock import Clock, RealClock, SimulatedClock
from trimtab.core.decision import Answer, Contribution, Decision, Outcome, Scalar
from trimtab.core.engine import Engine, EngineEvent, Launch, Node
from trimtab.core.errors import (
    BadInputError,
    MissingDependencyError,
    NotFoundError,
    StorageError,
    TrimtabError,
)
from trimtab.core.estimate import Estimate
from trimtab.core.home import home
from trimtab.core.json_grammar import within_grammar
from trimtab.core.offer import Configuration, Offer
from trimtab.core.plain import from_plain, to_plain
from trimtab.core.policy import Policy
from trimtab.core.profile import PROFILE_VERSION, Host, Layer, Model, Operators, Profile, Series, Steps
from trimtab.core.secret_names import names_a_secret, without_secrets
from trimtab.core.told import did_you_mean, one_line, quoted, refuse_unknown
from trimtab.core.workload import Kind, Workload

__all__ = [
    "PROFILE_VERSION",
    "Answer",
    "BadInputError",
    "Clock",
    "Configuration",
    "Contribution",
    "Decision",
    "Engine",
    "EngineEvent",
    "Estimate",
    "Host",
    "Kind",
    "Launch",
    "Layer",
    "MissingDependencyError",
    "Model",
    "Node",
    "NotFoundError",
    "Offer",
    "Operators",
    "Outcome",
    "Policy",
    "Profile",
    "RealClock",
    "Scalar",
    "Series",
    "SimulatedClock",
    "Steps",
    "StorageError",
    "TrimtabError",
    "Workload",
    "daly_interval",
    "did_you_mean",
    "from_plain",
    "home",
    "is_loopback",
    "names_a_secret",
    "one_line",
    "quoted",
    "refuse_unknown",
    "split_address",
    "to_plain",
    "within_grammar",
    "without_secrets",
    "young_interval",
]
