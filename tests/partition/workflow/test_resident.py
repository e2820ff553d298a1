"""Libraries that others had loaded before."""

import subprocess

from trimtab.partition.workflow.resident import Resident


def test_only_what_was_started_since_counts_and_never_lowers_what_was_charged() -> None:
    with subprocess.Popen(["sleep", "60"]) as before:
        resident = Resident()
        resident.look()
        with subprocess.Popen(["sleep", "60"]) as since:
            resident.look()
            since.kill()
        before.kill()
    first, second, third, last = resident.at_least((0.0, 0.0, 5.0, 7.0))
    assert (first, third, last) == (0.0, 5.0, 7.0)
    assert 0 < second < 2**26
    assert resident.at_least((2.0**40,)) == (2.0**40,)
