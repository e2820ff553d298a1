"""A cluster as somebody wrote it down in YAML: groups of equal nodes. Described in docs/schedule.md."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, parse_price, parse_rate
from trimtab.kernel import read_yaml
from trimtab.schedule.cluster import Group, Market
from trimtab.schedule.fields import Fields
from trimtab.schedule.job import kind_of
from trimtab.schedule.quota import Quotas
from trimtab.store import Tenant

_GROUP = (
    "name",
    "accelerator",
    "nodes",
    "gpus",
    "cpus",
    "memory",
    "price",
    "market",
    "reclaims",
    "zone",
)
_GROUP_EXAMPLE = "name: a100, accelerator: a100, nodes: 2, gpus: 8"
_TENANT = ("name", "parent", "guarantee", "limit", "weight")
_TENANT_EXAMPLE = "name: vision, guarantee: 8"

# Beside each accelerator of a node where nobody says.
_CPUS, _MEMORY = 8.0, 64e9


def read_cluster(path: Path) -> tuple[Group, ...]:
    """The groups; whatever cannot be understood is refused with its place."""
    groups = tuple(_group(f"{path}: groups[{n}]", told) for n, told in enumerate(_listed(path, "groups"), 1))
    names = [group.name for group in groups]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInputError(f"{path}: two groups are called {twice}; every group needs a name of its own")
    return groups


def read_quotas(path: Path) -> Quotas:
    """What tenants are guaranteed and limited to."""
    told = enumerate(_listed(path, "tenants"), 1)
    return Quotas([_tenant(f"{path}: tenants[{number}]", each) for number, each in told])


def _listed(path: Path, name: str) -> list[Any]:
    """The list under the only name of a file."""
    example = _GROUP_EXAMPLE if name == "groups" else _TENANT_EXAMPLE
    told = read_yaml(path, f"of {name}")
    fields = Fields(str(path), "", told, (name,), f"{name}: [{{{example}}}]")
    listed = fields.value(name)
    if not isinstance(listed, list) or not listed:
        right = f"it should be a list of at least one, such as [{{{example}}}]"
        raise fields.refuse(name, right) if name in fields else fields.missing(name, right)
    return listed


def _group(where: str, told: Any) -> Group:
    fields = Fields(where, "", told, _GROUP, _GROUP_EXAMPLE)
    gpus = fields.count("gpus", 1 if "accelerator" in fields else 0)
    if gpus and "accelerator" not in fields:
        raise fields.missing("accelerator", "name the kind, such as a100")
    if not gpus and ("cpus" not in fields or "memory" not in fields):
        raise fields.missing(
            "cpus" if "cpus" not in fields else "memory", "nodes without accelerators need cpus and memory"
        )
    market = Market(fields.one_of("market", [market.value for market in Market], Market.ON_DEMAND.value))
    if "reclaims" in fields and market is not Market.SPOT:
        raise fields.refuse("reclaims", "only nodes of the market spot are reclaimed; add market: spot")
    kind = kind_of(fields.name("accelerator")) if gpus else ""
    return Group(
        name=fields.name("name", kind or "cpu"),
        accelerator=kind,
        nodes=fields.count("nodes", 1, least=1),
        gpus=gpus,
        cpus=fields.number("cpus", _CPUS * gpus),
        memory=fields.bytes("memory", _MEMORY * gpus),
        price=_amount(fields, "price", parse_price, "the price of one node, such as $3.20/h"),
        market=market,
        reclaims=_amount(fields, "reclaims", parse_rate, "how often a node is taken away, such as 0.05/h"),
        zone=_zone(fields),
    )


def _amount(fields: Fields, name: str, parse: Callable[[str], float], right: str) -> float:
    """A quantity in its own unit; 0 where it is not told."""
    if name not in fields:
        return 0.0
    try:
        return parse(str(fields.value(name)))
    except BadInputError:
        raise fields.refuse(name, f"it should be {right}") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInputError(f"{text} is not a number") from None


def _zone(fields: Fields) -> str:
    zone = fields.value("zone")
    if zone is not None and not isinstance(zone, str):
        raise fields.refuse("zone", "it should be a name such as us-east-1a, or cloud/region/zone")
    return zone or ""


def _tenant(where: str, told: Any) -> Tenant:
    fields = Fields(where, "", told, _TENANT, _TENANT_EXAMPLE)
    return Tenant(
        name=fields.name("name"),
        parent=fields.name("parent") if "parent" in fields else None,
        guarantee=_amount(fields, "guarantee", _number, "a number of accelerators"),
        weight=fields.number("weight", 1.0),
        limit=fields.number("limit", 0.0) if "limit" in fields else None,
    )
