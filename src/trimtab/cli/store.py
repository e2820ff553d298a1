"""`trimtab store`: what is kept, whether it is sound, and copies of it."""

import json
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.options import Json, command_group
from trimtab.cli.terminal import progress
from trimtab.core import format_bytes, to_plain
from trimtab.store import look_at_store, open_store

store_app = command_group()


@store_app.callback()
def store() -> None:
    """Back up, restore, check and describe the store that `$TRIMTAB_STORE` names, or the default one."""


@store_app.command()
def info(as_json: Json = False) -> None:
    """Where the store is, its schema, its size and how many rows it has."""
    with open_store() as opened:
        known = opened.facts()
    if as_json:
        print(json.dumps(to_plain(known)))
        return
    print(f"store    {known.name}")
    print(f"schema   {known.schema}")
    print(f"size     {format_bytes(known.size)}")
    for table, rows in known.rows.items():
        print(f"{table:<10} {rows:>12,}")


@store_app.command()
def check() -> None:
    """Look through the whole database for damage; exits with 1 and says what there is where it finds any."""
    with open_store() as opened:
        found = opened.faults()
        name = opened.name
    for said in found:
        print(said)
    if found:
        raise typer.Exit(1)
    print(f"the store {name} is sound")


@store_app.command()
def migrate() -> None:
    """Bring the store to the schema of this version. Opening a store does so too; this says what it did."""
    before = look_at_store()
    open_store().close()
    if before.revision == before.newest:
        print(f"the store {before.name} has schema {before.newest} already")
    else:
        print(f"the store {before.name} went from schema {before.revision or 'none'} to {before.newest}")


@store_app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="The file to write, a new one.", show_default=False)],
) -> None:
    """Write all that is kept into a file, as it is at this moment, while others go on writing.

    The file is of one format for SQLite and PostgreSQL, with a checksum, and readable for its owner alone.
    """
    with open_store() as opened, progress("writing") as update:
        rows = opened.back_up(file, lambda done, of: update(completed=done, total=of))
    print(f"wrote {rows:,} rows to {file}")


@store_app.command()
def restore(
    file: Annotated[Path, typer.Argument(help="A file that backup wrote.", show_default=False)],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace all that the store holds, which is lost then.")
    ] = False,
) -> None:
    """Keep what a backup holds: all of it, or nothing where anything goes wrong.

    The checksum is verified first. A store that holds something is refused without `--replace`. A backup of
    SQLite may be restored into PostgreSQL, and the other way round: name the new store by `TRIMTAB_STORE`.
    """
    with open_store() as opened, progress("restoring") as update:
        rows = opened.restore(file, replace, lambda done, of: update(completed=done, total=of))
        name = opened.name
    print(f"restored {rows:,} rows into {name}")
