"""Whose everything is; tokens, replies to requests that may be repeated, and who leads."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    _say_whose()
    op.create_table(
        "tokens",
        sa.Column("id", ID, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("scopes", sa.JSON, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("expires", sa.Double, nullable=True),
        sa.Column("revoked", sa.Double, nullable=True),
        sa.Column("made_by", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("change", sa.BigInteger, nullable=False),
    )
    op.create_index("tokens_change", "tokens", ["change"])
    op.create_index("tokens_tenant", "tokens", ["tenant", "created", "id"])
    op.create_table(
        "replies",
        sa.Column("owner", ID, primary_key=True),
        sa.Column("key", ID, primary_key=True),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
    )
    op.create_index("replies_time", "replies", ["time"])
    op.create_table(
        "leaders",
        sa.Column("name", ID, primary_key=True),
        sa.Column("term", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
    )


def _say_whose() -> None:
    # A default fills the column without an UPDATE, which the triggers on history would refuse.
    for table in ("decisions", "profiles", "events"):
        op.add_column(table, sa.Column("tenant", sa.Text, nullable=False, server_default="default"))
    for table, searched in (("decisions", ("kind", "subject")), ("profiles", ("workload",))):
        op.create_index(f"{table}_tenant", table, ["tenant", "created", "sequence"])
        op.create_index(f"{table}_tenant_id", table, ["tenant", "id"])
        for name in searched:
            op.create_index(f"{table}_tenant_{name}", table, ["tenant", name, "created", "sequence"])
    op.create_index("events_tenant", "events", ["tenant", "id"])
    op.create_index("events_tenant_kind", "events", ["tenant", "kind", "id"])
    op.create_index("events_tenant_subject", "events", ["tenant", "subject", "id"])
    op.create_index("jobs_name", "jobs", ["name", "created", "sequence"])
    op.create_index("jobs_tenant_id", "jobs", ["tenant", "id"])
    op.create_index("jobs_tenant_state", "jobs", ["tenant", "state", "created", "sequence"])
    op.create_index("jobs_tenant_name", "jobs", ["tenant", "name", "created", "sequence"])
