"""The tables as they are now; `migrations` says how they came to be."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
)

VERSION_TABLE = "trimtab_schema"

_SERIAL = BigInteger().with_variant(Integer(), "sqlite")
# Ordered by code point on both databases, so that "starts with" is a range of the index.
_ID = Text().with_variant(Text(collation="C"), "postgresql")

metadata = MetaData()

decisions = Table(
    "decisions",
    metadata,
    Column("sequence", _SERIAL, primary_key=True),
    Column("id", _ID, nullable=False, unique=True),
    Column("created", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("body", JSON, nullable=False),
    Index("decisions_created", "created", "sequence"),
    Index("decisions_kind", "kind", "created", "sequence"),
    Index("decisions_subject", "subject", "created", "sequence"),
)

outcomes = Table(
    "outcomes",
    metadata,
    Column("sequence", _SERIAL, primary_key=True),
    Column("decision_id", _ID, ForeignKey("decisions.id"), nullable=False),
    Column("recorded", Double, nullable=False),
    Column("body", JSON, nullable=False),
    Index("outcomes_decision", "decision_id", "sequence"),
)

profiles = Table(
    "profiles",
    metadata,
    Column("sequence", _SERIAL, primary_key=True),
    Column("id", _ID, nullable=False, unique=True),
    Column("created", Double, nullable=False),
    Column("workload", Text, nullable=False),
    Column("body", JSON, nullable=False),
    Index("profiles_created", "created", "sequence"),
    Index("profiles_workload", "workload", "created", "sequence"),
)

events = Table(
    "events",
    metadata,
    Column("id", _SERIAL, primary_key=True),
    Column("time", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", JSON, nullable=False),
    Index("events_time", "time"),
    Index("events_kind", "kind", "id"),
    Index("events_subject", "subject", "id"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("sequence", _SERIAL, primary_key=True),
    Column("id", _ID, nullable=False, unique=True),
    Column("created", Double, nullable=False),
    Column("name", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("application", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("done", Double, nullable=False),
    Column("body", JSON, nullable=False),
    Column("run", JSON, nullable=False),
    Column("outlook", JSON, nullable=False),
    Index("jobs_created", "created", "sequence"),
    Index("jobs_state", "state", "created", "sequence"),
    Index("jobs_tenant", "tenant", "created", "sequence"),
)

tenants = Table(
    "tenants",
    metadata,
    Column("name", _ID, primary_key=True),
    Column("parent", _ID, nullable=True),
    Column("guarantee", Double, nullable=False),
    Column("weight", Double, nullable=False),
    Column("limit", Double, nullable=True),
)

notes = Table(
    "notes",
    metadata,
    Column("name", _ID, primary_key=True),
    Column("time", Double, nullable=False),
    Column("body", JSON, nullable=False),
)
