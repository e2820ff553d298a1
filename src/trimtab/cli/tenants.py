"""`trimtab tenants`: who shares the fleet, and what each was promised."""

import json
from typing import Annotated

import typer

from trimtab.cli.place import place

_MOST = 10_000  # active jobs to count

tenants_app = typer.Typer(no_args_is_help=False, rich_markup_mode="markdown")

Name = Annotated[str, typer.Argument(help="The tenant's name.", show_default=False)]


@tenants_app.callback(invoke_without_command=True)
def tenants(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """List tenants with their guarantees, limits and weights, and what they have now.

    A tenant gets its guarantee as soon as it asks, by preempting who has borrowed it. Guarantees are in
    accelerators, and those of a tenant's children add up to no more than its own.
    """
    if context.invoked_subcommand is not None:
        return
    from rich.console import Console

    from trimtab.core import to_plain
    from trimtab.store import ACTIVE

    with place() as at:
        known = at.tenants.list()
        active = at.jobs.page(_MOST, state=ACTIVE).items
    if as_json:
        print(json.dumps([to_plain(tenant) for tenant in known]))
        return
    console = Console(highlight=False)
    if not known:
        console.print("no tenants; trimtab tenants set NAME --guarantee 8 makes one", markup=False)
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("tenant", "parent", "guarantee", "limit", "weight", "running", "waiting"):
        table.add_column(name)
    for tenant in known:
        of = [record.state.value for record in active if record.tenant == tenant.name]
        waiting = of.count("waiting")
        limit = "" if tenant.limit is None else f"{tenant.limit:g}"
        table.add_row(
            *(tenant.name, tenant.parent or "", f"{tenant.guarantee:g}", limit, f"{tenant.weight:g}"),
            *(str(len(of) - waiting), str(waiting)),
        )
    console.print(table)


@tenants_app.command("set")
def set_tenant(
    name: Name,
    guarantee: Annotated[
        float | None, typer.Option(help="Accelerators it always gets.", min=0, show_default=False)
    ] = None,
    parent: Annotated[
        str | None, typer.Option(help='The tenant above it; "" for none.', show_default=False)
    ] = None,
    weight: Annotated[
        float | None, typer.Option(help="Its share of what is left, beside others'.", show_default=False)
    ] = None,
    limit: Annotated[
        float | None, typer.Option(help="Accelerators it never exceeds.", min=0, show_default=False)
    ] = None,
    no_limit: Annotated[bool, typer.Option("--no-limit", help="Take its limit away.")] = False,
) -> None:
    """Make a tenant, or change what is given of one; circles and broken promises are refused."""
    from dataclasses import replace

    from trimtab.core import BadInputError
    from trimtab.schedule import require_name
    from trimtab.store import Tenant

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
