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

from trimtab.core import DEFAULT_TENANT

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
    Column("tenant", Text, nullable=False, server_default=DEFAULT_TENANT),
    Index("decisions_created", "created", "sequence"),
    Index("decisions_kind", "kind", "created", "sequence"),
    Index("decisions_subject", "subject", "created", "sequence"),
    Index("decisions_tenant", "tenant", "created", "sequence"),
    Index("decisions_tenant_id", "tenant", "id"),
    Index("decisions_tenant_kind", "tenant", "kind", "created", "sequence"),
    Index("decisions_tenant_subject", "tenant", "subject", "created", "sequence"),
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
    Column("tenant", Text, nullable=False, server_default=DEFAULT_TENANT),
    Index("profiles_created", "created", "sequence"),
    Index("profiles_workload", "workload", "created", "sequence"),
    Index("profiles_tenant", "tenant", "created", "sequence"),
    Index("profiles_tenant_id", "tenant", "id"),
    Index("profiles_tenant_workload", "tenant", "workload", "created", "sequence"),
)

events = Table(
    "events",
    metadata,
    Column("id", _SERIAL, primary_key=True),
    Column("time", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", JSON, nullable=False),
    Column("tenant", Text, nullable=False, server_default=DEFAULT_TENANT),
    Index("events_time", "time"),
    Index("events_kind", "kind", "id"),
    Index("events_subject", "subject", "id"),
    Index("events_tenant", "tenant", "id"),
    Index("events_tenant_kind", "tenant", "kind", "id"),
    Index("events_tenant_subject", "tenant", "subject", "id"),
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
    Index("jobs_name", "name", "created", "sequence"),
    Index("jobs_tenant", "tenant", "created", "sequence"),
    Index("jobs_tenant_id", "tenant", "id"),
    Index("jobs_tenant_state", "tenant", "state", "created", "sequence"),
    Index("jobs_tenant_name", "tenant", "name", "created", "sequence"),
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

tokens = Table(
    "tokens",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("name", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("scopes", JSON, nullable=False),
    Column("created", Double, nullable=False),
    Column("expires", Double, nullable=True),
    Column("revoked", Double, nullable=True),
    Column("made_by", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("change", BigInteger, nullable=False),
    Index("tokens_change", "change"),
    Index("tokens_tenant", "tenant", "created", "id"),
)

replies = Table(
    "replies",
    metadata,
    Column("owner", _ID, primary_key=True),
    Column("key", _ID, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("status", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("time", Double, nullable=False),
    Index("replies_time", "time"),
)

leaders = Table(
    "leaders",
    metadata,
    Column("name", _ID, primary_key=True),
    Column("term", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("since", Double, nullable=False),
)
