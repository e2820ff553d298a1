"""`trimtab tenants`: who shares the fleet, and what each was promised."""

import json
from dataclasses import replace
from typing import Annotated

import typer

from trimtab.cli.options import Json, command_group
from trimtab.cli.place import place
from trimtab.cli.terminal import new_table, print_table, say
from trimtab.core import BadInputError, to_plain
from trimtab.schedule import require_name
from trimtab.store import ACTIVE, Tenant

_MOST = 10_000  # active jobs to count

tenants_app = command_group(no_args_is_help=False)

Name = Annotated[str, typer.Argument(help="The tenant's name.", show_default=False)]


@tenants_app.callback(invoke_without_command=True)
def tenants(
    context: typer.Context,
    as_json: Json = False,
) -> None:
    """List tenants with their guarantees, limits and weights, and what they have now.

    A tenant gets its guarantee as soon as it asks, by preempting who has borrowed it. Guarantees are in
    accelerators, and those of a tenant's children add up to no more than its own.
    """
    if context.invoked_subcommand is not None:
        return
    with place() as at:
        known = at.tenants.list()
        active = at.jobs.page(_MOST, state=ACTIVE).items
    if as_json:
        print(json.dumps([to_plain(tenant) for tenant in known]))
        return
    if not known:
        say("no tenants; trimtab tenants set NAME --guarantee 8 makes one")
        return
    shown = new_table("tenant", "parent", "guarantee", "limit", "weight", "running", "waiting")
    for tenant in known:
        of = [record.state.value for record in active if record.tenant == tenant.name]
        waiting = of.count("waiting")
        limit = "" if tenant.limit is None else f"{tenant.limit:g}"
        shown.add_row(
            *(tenant.name, tenant.parent or "", f"{tenant.guarantee:g}", limit, f"{tenant.weight:g}"),
            *(str(len(of) - waiting), str(waiting)),
        )
    print_table(shown)


@tenants_app.command("set")
def set_tenant(
    name: Name,
    guarantee: Annotated[float | None, typer.Option(help="Accelerators it always gets.", min=0)] = None,
    parent: Annotated[str | None, typer.Option(help='The tenant above it; "" for none.')] = None,
    weight: Annotated[float | None, typer.Option(help="Its share of what is left, beside others'.")] = None,
    limit: Annotated[float | None, typer.Option(help="Accelerators it never exceeds.", min=0)] = None,
    no_limit: Annotated[bool, typer.Option("--no-limit", help="Take its limit away.")] = False,
) -> None:
    """Make a tenant, or change what is given of one; circles and broken promises are refused."""
    if no_limit and limit is not None:
        raise BadInputError("--limit and --no-limit contradict each other; keep one")
    with place() as at:
        known = {tenant.name: tenant for tenant in at.tenants.list()}
        tenant = known.get(name) or Tenant(require_name(name, "a tenant"))
        tenant = replace(
            tenant,
            parent=tenant.parent if parent is None else parent or None,
            guarantee=tenant.guarantee if guarantee is None else guarantee,
            weight=tenant.weight if weight is None else weight,
            limit=None if no_limit else tenant.limit if limit is None else limit,
        )
        at.tenants.put(name, tenant.parent, tenant.guarantee, tenant.weight, tenant.limit)
    typer.echo(f"tenant {name}: guarantee {tenant.guarantee:g}, weight {tenant.weight:g}")


@tenants_app.command("remove")
def remove_tenant(name: Name) -> None:
    """Forget a tenant; its jobs stay, without a guarantee."""
    with place() as at:
        at.tenants.remove(name)
    typer.echo(f"tenant {name} is forgotten")
