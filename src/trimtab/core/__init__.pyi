from .checkpoint_rules import daly_interval as daly_interval, young_interval as young_interval
from .clock import Clock as Clock, RealClock as RealClock, SimulatedClock as SimulatedClock
from .decision import (
    Answer as Answer,
    Contribution as Contribution,
    Decision as Decision,
    Estimate as Estimate,
    Outcome as Outcome,
    Scalar as Scalar,
)
from .engine import Engine as Engine, EngineEvent as EngineEvent, Launch as Launch, Node as Node
from .environment import home as home, names_a_secret as names_a_secret, without_secrets as without_secrets
from .errors import (
    BadInputError as BadInputError,
    MissingDependencyError as MissingDependencyError,
    NotFoundError as NotFoundError,
    StorageError as StorageError,
    TrimtabError as TrimtabError,
)
from .goal import (
    OBJECTIVES as OBJECTIVES,
    Dropped as Dropped,
    Goal as Goal,
    score as score,
    within_limits as within_limits,
)
from .plain import from_plain as from_plain, to_plain as to_plain, within_grammar as within_grammar
from .profile import (
    PROFILE_VERSION as PROFILE_VERSION,
    Host as Host,
    Layer as Layer,
    Model as Model,
    Operators as Operators,
    Profile as Profile,
    Series as Series,
    Steps as Steps,
)
from .text import (
    did_you_mean as did_you_mean,
    is_loopback as is_loopback,
    one_line as one_line,
    quoted as quoted,
    refuse_unknown as refuse_unknown,
    split_address as split_address,
)
from .units import (
    GIB as GIB,
    HOUR as HOUR,
    MIB as MIB,
    format_bandwidth as format_bandwidth,
    format_bytes as format_bytes,
    format_duration as format_duration,
    format_flop as format_flop,
    format_flop_rate as format_flop_rate,
    format_money as format_money,
    format_price as format_price,
    parse_bandwidth as parse_bandwidth,
    parse_bytes as parse_bytes,
    parse_duration as parse_duration,
    parse_flop_rate as parse_flop_rate,
    parse_memory_size as parse_memory_size,
    parse_money as parse_money,
    parse_price as parse_price,
    parse_rate as parse_rate,
)
from .user_input import (
    Bytes as Bytes,
    Command as Command,
    Count as Count,
    Dollars as Dollars,
    Name as Name,
    Number as Number,
    Seconds as Seconds,
    StrictModel as StrictModel,
    Whole as Whole,
    quantity as quantity,
    validate as validate,
)
from .workload import Configuration as Configuration, Kind as Kind, Offer as Offer, Workload as Workload
