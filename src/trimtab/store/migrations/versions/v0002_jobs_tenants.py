"""Jobs, tenants and notes."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("sequence", SERIAL, primary_key=True),
        sa.Column("id", ID, nullable=False, unique=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("application", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("done", sa.Double, nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("run", sa.JSON, nullable=False),
        sa.Column("outlook", sa.JSON, nullable=False),
    )
    op.create_index("jobs_created", "jobs", ["created", "sequence"])
    op.create_index("jobs_state", "jobs", ["state", "created", "sequence"])
    op.create_index("jobs_tenant", "jobs", ["tenant", "created", "sequence"])
    op.create_table(
        "tenants",
        sa.Column("name", ID, primary_key=True),
        sa.Column("parent", ID, nullable=True),
        sa.Column("guarantee", sa.Double, nullable=False),
        sa.Column("weight", sa.Double, nullable=False),
        sa.Column("limit", sa.Double, nullable=True),
    )
    op.create_table(
        "notes",
        sa.Column("name", ID, primary_key=True),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
    )
