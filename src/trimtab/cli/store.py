"""`trimtab store`: describe, check, back up and restore the store."""

import json
from pathlib import Path

import typer

from trimtab.cli.terminal import Json, command_group, progress
from trimtab.core import format_bytes, to_plain
from trimtab.store import look_at_store, open_store

store_app = command_group(
    "Back up, restore, check and describe the store that `$TRIMTAB_STORE` names, or the default one."
)


@store_app.command()
def info(as_json: Json = False) -> None:
    """Print the store's location, schema version, size and number of rows."""
    with open_store() as opened:
        facts = opened.facts()
    if as_json:
        print(json.dumps(to_plain(facts)))
        return
    print(f"store    {facts.name}")
    print(f"schema   {facts.schema}")
    print(f"size     {format_bytes(facts.size)}")
    for table, rows in facts.rows.items():
        print(f"{table:<10} {rows:>12,}")


@store_app.command()
def check() -> None:
    """Check the whole database for damage; prints what it finds, and exits with 1 if there is any."""
    with open_store() as opened:
        faults, name = opened.faults(), opened.name
    for fault in faults:
        print(fault)
    if faults:
        raise typer.Exit(1)
    print(f"the store {name} is sound")


@store_app.command()
def migrate() -> None:
    """Migrate the store to the schema of this version, as opening it does, and print both schemas."""
    before = look_at_store()
    open_store().close()
    if before.revision == before.newest:
        print(f"the store {before.name} has schema {before.newest} already")
    else:
        print(f"the store {before.name} went from schema {before.revision or 'none'} to {before.newest}")


@store_app.command()
def backup(file: Path = typer.Argument(..., help="The file to write; it must not exist.")) -> None:
    """Write a consistent copy of the store into a file, while other processes keep writing.

    The file has one format for SQLite and PostgreSQL, with a checksum, and is readable by its owner only.
    """
    with open_store() as opened, progress("writing") as update:
        rows = opened.back_up(file, lambda done, of: update(completed=done, total=of))
    print(f"wrote {rows:,} rows to {file}")


@store_app.command()
def restore(
    file: Path = typer.Argument(..., help="A file that `trimtab store backup` wrote."),
    replace: bool = typer.Option(False, "--replace", help="Delete the present contents of the store first."),
) -> None:
    """Restore a backup into the store, in one transaction.

    The checksum is verified first. A store that holds something is refused without `--replace`. A backup of
    SQLite may be restored into PostgreSQL, and the other way round: name the new store by `TRIMTAB_STORE`.
    """
    with open_store(new=True) as opened, progress("restoring") as update:
        rows = opened.restore(file, replace, lambda done, of: update(completed=done, total=of))
        name = opened.name
    print(f"restored {rows:,} rows into {name}")
