"""What a page is: where it stands, who may see it, and what draws it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from trimtab.serve.access import Principal
from trimtab.serve.dashboard.visit import Visit
from trimtab.store import Role

Asked = Mapping[str, str]
"""Parts of the address: of its path and of its query."""

Draw = Callable[[Visit, Asked], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Page:
    """One line of the navigation. `key` opens it after g; `below` are further paths and what draws them.

    Who may see it: with the scope `area`:read, at least of a role, and with `fleet` for all tenants.
    """

    title: str
    path: str
    icon: str
    key: str
    area: str
    draw: Draw
    below: tuple[tuple[str, Draw], ...] = ()
    least: Role = Role.VIEWER
    fleet: bool = False

    def allowed(self, principal: Principal) -> bool:
        """Whether somebody may see it."""
        return principal.may(self.area, "read", self.least, self.fleet)
