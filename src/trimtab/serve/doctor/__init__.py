"""The doctor: what this machine lacks, what that disables, and how to mend it."""

from trimtab.serve.doctor import installation, machine  # they register their checks
from trimtab.serve.doctor.examination import GROUPS, Examined, Finding, FindingState, examine, fit

__all__ = ["GROUPS", "Examined", "Finding", "FindingState", "examine", "fit", "installation", "machine"]
