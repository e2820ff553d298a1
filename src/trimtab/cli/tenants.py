"""`trimtab tenants`: the tenants of the fleet, with their guarantees."""

import json
from dataclasses import replace
from typing import Annotated

import typer

from trimtab.cli.place import place
from trimtab.cli.terminal import Json, command_group, print_rows, say
from trimtab.core import BadInputError, to_plain
from trimtab.schedule import require_name
from trimtab.store import ACTIVE, Tenant

_MOST = 10_000  # active jobs to count

tenants_app = command_group("Tenants with their guarantees, limits and weights.")

Name = Annotated[str, typer.Argument(help="The tenant's name.", show_default=False)]


@tenants_app.command("ls")
def list_tenants(as_json: Json = False) -> None:
    """List tenants with their guarantees, limits and weights, and their active jobs.

    A tenant gets its guarantee as soon as it submits jobs, by preempting jobs that borrowed it. Guarantees
    are in accelerators; those of a tenant's children add up to no more than its own.
    """
    with place() as at:
        tenants = at.tenants.list()
        active = at.jobs.page(_MOST, state=ACTIVE).items
    if as_json:
        print(json.dumps([to_plain(tenant) for tenant in tenants]))
        return
    if not tenants:
        say("no tenants; trimtab tenants set NAME --guarantee 8 makes one")
        return
    rows = []
    for tenant in tenants:
        states = [record.state.value for record in active if record.tenant == tenant.name]
        waiting = states.count("waiting")
        limit = "" if tenant.limit is None else f"{tenant.limit:g}"
        rows.append(
            (
                *(tenant.name, tenant.parent or "", f"{tenant.guarantee:g}", limit, f"{tenant.weight:g}"),
                *(str(len(states) - waiting), str(waiting)),
            )
        )
    print_rows(("tenant", "parent", ">guarantee", ">limit", ">weight", ">running", ">waiting"), rows)


@tenants_app.command("set")
def set_tenant(
    name: Name,
    guarantee: float | None = typer.Option(
        None, help="Accelerators that it gets whenever it has jobs for them.", min=0
    ),
    parent: str | None = typer.Option(None, metavar="NAME", help='The parent tenant; "" for none.'),
    weight: float | None = typer.Option(
        None, help="Its share of accelerators that no guarantee claims, relative to other tenants."
    ),
    limit: float | None = typer.Option(None, help="Most accelerators that its jobs may use at once.", min=0),
    no_limit: bool = typer.Option(False, "--no-limit", help="Remove its limit."),
) -> None:
    """Add a tenant, or change the given values of a tenant.

    Refused are circular parents, and guarantees of children that exceed their parent's.
    """
    if no_limit and limit is not None:
        raise BadInputError("--limit and --no-limit contradict each other; give only one of them")
    with place() as at:
        tenants = {tenant.name: tenant for tenant in at.tenants.list()}
        tenant = tenants.get(name) or Tenant(require_name(name, "a tenant"))
        tenant = replace(
            tenant,
            parent=tenant.parent if parent is None else parent or None,
            guarantee=tenant.guarantee if guarantee is None else guarantee,
            weight=tenant.weight if weight is None else weight,
            limit=None if no_limit else tenant.limit if limit is None else limit,
        )
        at.tenants.put(name, tenant.parent, tenant.guarantee, tenant.weight, tenant.limit)
    limit_text = "none" if tenant.limit is None else f"{tenant.limit:g}"
    shares = f"guarantee {tenant.guarantee:g}, limit {limit_text}, weight {tenant.weight:g}"
    say(f"tenant {name}: {shares}{f', parent {tenant.parent}' if tenant.parent else ''}")


@tenants_app.command("remove")
def remove_tenant(name: Name) -> None:
    """Remove a tenant; its jobs stay, without a guarantee."""
    with place() as at:
        at.tenants.remove(name)
    say(f"tenant {name} is removed")
