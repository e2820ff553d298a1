"""The ledger (decisions and outcomes), profiles and events."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    _create_tables()
    if op.get_bind().dialect.name == "postgresql":
        _forbid_changes_in_postgresql()
    else:
        _forbid_changes_in_sqlite()


def _create_tables() -> None:
    op.create_table(
        "decisions",
        sa.Column("sequence", SERIAL, primary_key=True),
        sa.Column("id", ID, nullable=False, unique=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
    )
    op.create_index("decisions_created", "decisions", ["created", "sequence"])
    op.create_index("decisions_kind", "decisions", ["kind", "created", "sequence"])
    op.create_index("decisions_subject", "decisions", ["subject", "created", "sequence"])
    op.create_table(
        "outcomes",
        sa.Column("sequence", SERIAL, primary_key=True),
        sa.Column("decision_id", ID, sa.ForeignKey("decisions.id"), nullable=False),
        sa.Column("recorded", sa.Double, nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
    )
    op.create_index("outcomes_decision", "outcomes", ["decision_id", "sequence"])
    op.create_table(
        "profiles",
        sa.Column("sequence", SERIAL, primary_key=True),
        sa.Column("id", ID, nullable=False, unique=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("workload", sa.Text, nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
    )
    op.create_index("profiles_created", "profiles", ["created", "sequence"])
    op.create_index("profiles_workload", "profiles", ["workload", "created", "sequence"])
    op.create_table(
        "events",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
    )
    op.create_index("events_time", "events", ["time"])
    op.create_index("events_kind", "events", ["kind", "id"])
    op.create_index("events_subject", "events", ["subject", "id"])


def _forbid_changes_in_sqlite() -> None:
    for table in ("decisions", "outcomes", "events"):
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_refuse_{change.lower()} BEFORE {change} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} are append-only'); END"
            )
    # INSERT OR REPLACE deletes the old row without firing the trigger on DELETE.
    for table, same in (
        ("decisions", "id = NEW.id OR sequence = NEW.sequence"),
        ("outcomes", "sequence = NEW.sequence"),
        ("events", "id = NEW.id"),
    ):
        op.execute(
            f"CREATE TRIGGER {table}_refuse_replace BEFORE INSERT ON {table} "  # nosec B608 # names from above
            f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {same}) "
            f"BEGIN SELECT RAISE(ABORT, '{table} are append-only'); END"
        )


def _forbid_changes_in_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION trimtab_refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION '% are append-only', TG_TABLE_NAME; END $$"
    )
    for table in ("decisions", "outcomes", "events"):
        op.execute(
            f"CREATE TRIGGER {table}_refuse_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION trimtab_refuse_change()"
        )
