"""What tenants are guaranteed and limited to, in a tree; and how even shares are."""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from trimtab.core import BadInputError, did_you_mean
from trimtab.store import Tenant

_SLACK = 1e-9


Line = tuple[Tenant, ...]
"""A tenant, its parent, and so on to the top."""


def limit_of(tenant: Tenant) -> float:
    """The most accelerators a tenant and all below it may have at a time."""
    return np.inf if tenant.limit is None else tenant.limit


class Quotas:
    """Tenants in a tree: a guarantee or limit is for a tenant and all below it together.

    A tenant that is not named has no guarantee, no limit and no parent.
    """

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        listed = tuple(tenants)
        twice = [name for name, count in Counter(tenant.name for tenant in listed).items() if count > 1]
        if twice:
            raise BadInputError(f"tenant {twice[0]} is named twice; once is enough")
        self._tenants = {tenant.name: tenant for tenant in listed}
        for tenant in listed:
            _check_numbers(tenant)
            self._check_parent(tenant)
        for tenant in listed:
            self._check_guarantees(tenant)

    @property
    def tenants(self) -> Mapping[str, Tenant]:
        """By name."""
        return self._tenants

    def line(self, name: str) -> Line:
        """A tenant, its parent, and so on to the top."""
        found = [self._tenants.get(name) or Tenant(name)]
        while found[-1].parent is not None:
            found.append(self._tenants[found[-1].parent])
        return tuple(found)

    def _check_parent(self, tenant: Tenant) -> None:
        seen = [tenant.name]
        while (parent := self._tenants[seen[-1]].parent) is not None:
            if parent not in self._tenants:
                known = did_you_mean(parent, self._tenants) or "; name it as a tenant too"
                raise BadInputError(f"tenant {seen[-1]} has the parent {parent}, which is no tenant{known}")
            if parent in seen:
                circle = " → ".join([*seen[seen.index(parent) :], parent])
                raise BadInputError(f"tenants are in a circle: {circle}; one of them must have no parent")
            seen.append(parent)

    def _check_guarantees(self, tenant: Tenant) -> None:
        below = [each for each in self._tenants.values() if each.parent == tenant.name]
        promised = sum(each.guarantee for each in below)
        if promised > tenant.guarantee + _SLACK:
            names = " and ".join(each.name for each in below if each.guarantee)
            raise BadInputError(
                f"{names} below {tenant.name} {'are' if len(below) > 1 else 'is'} guaranteed {promised:g}"
                f" accelerators, more than the {tenant.guarantee:g} of {tenant.name} itself;"
                f" raise its guarantee or lower theirs"
            )


def _check_numbers(tenant: Tenant) -> None:
    if not 0 <= tenant.guarantee < np.inf:
        raise BadInputError(
            f"tenant {tenant.name}: a guarantee is 0 or more accelerators, not {tenant.guarantee:g}"
        )
    if not 0 < tenant.weight < np.inf:
        raise BadInputError(f"tenant {tenant.name}: a weight is above 0, not {tenant.weight:g}")
    if not limit_of(tenant) >= tenant.guarantee:
        raise BadInputError(
            f"tenant {tenant.name}: the limit {tenant.limit} is below the guarantee {tenant.guarantee:g}"
        )


def jain_index(shares: Iterable[float]) -> float:
    """How even shares are: 1 where all are equal, 1/n where one has everything; 1 where there are none."""
    values = np.array(list(shares), dtype=float)
    squares = float((values**2).sum())
    return float(values.sum() ** 2 / (len(values) * squares)) if squares > 0 else 1.0
