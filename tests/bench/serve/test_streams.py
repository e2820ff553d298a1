"""Which events a stream must get: its tenant's, and who wrote what for an admin alone."""

from trimtab_bench.serve.store import ALL_TENANTS
from trimtab_bench.serve.streams import expected, stream_owners


def test_five_hundred_streams_are_of_all_tenants_and_a_few_see_everything() -> None:
    owners = stream_owners(500)
    assert len(owners) == 500
    assert owners.count(ALL_TENANTS) == 20
    assert len(set(owners)) == 21


def test_a_stream_gets_the_events_of_its_tenant_and_no_audit_unless_it_sees_everything() -> None:
    events = [
        (5, "job.waiting", "team-00"),
        (6, "audit", "team-00"),
        (8, "job.waiting", "team-01"),
        (9, "job.cancelled", "team-00"),
    ]
    assert expected(events, ["team-00", "team-01", "team-02", ALL_TENANTS]) == [
        (2, 14),
        (1, 8),
        (0, 0),
        (4, 28),
    ]
