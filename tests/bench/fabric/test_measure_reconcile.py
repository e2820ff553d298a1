"""The measurement measures: small, to see that it does."""

import pytest
from trimtab_bench.fabric.reconcile import measure_reconciling

from trimtab.fabric.reconcile.bpf_plane import bpf_unavailable

REASON = bpf_unavailable()


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_every_change_is_timed_also_those_nobody_heard_of() -> None:
    seconds = measure_reconciling(macs=50, changes=6, many=300, period=0.3)
    assert len(seconds["changes"]) == 6
    assert all(
        0 < took < 30 for took in (*seconds["changes"], seconds["full_sync"], seconds["compared_again"])
    )
    # Without messages a change waits for the period's end; the first may find it near.
    assert max(seconds["without_messages"]) > 0.2
