"""Alembic runs this file to migrate the connection that `trimtab.store.database` passes to it."""

from alembic import context

from trimtab.store.tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
context.run_migrations()
