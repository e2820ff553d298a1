"""Things of the vocabulary as the store shows them: with the tenant whose they are."""

from dataclasses import dataclass

from trimtab.core import Decision, Profile


@dataclass(frozen=True, slots=True)
class OwnedDecision(Decision):
    """A decision, and whose it is."""

    tenant: str = ""


@dataclass(frozen=True, slots=True)
class OwnedProfile(Profile):
    """A profile, and whose it is."""

    tenant: str = ""
