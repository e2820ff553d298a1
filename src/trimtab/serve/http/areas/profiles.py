"""/v1/profiles and /v1/workloads: what short local runs showed, and of what."""

from typing import Annotated

from fastapi import Query
from pydantic import Field

from trimtab.core import Profile
from trimtab.serve.http.answer import Answer, json_answer, page_answer, text_answer
from trimtab.serve.http.areas.owned import OwnedProfile
from trimtab.serve.http.route import Effect, slow
from trimtab.serve.http.router import Caller, PageAsked, PageOf, Router, Told
from trimtab.serve.operations import SeenWorkload
from trimtab.store import WantedProfiles

router = Router("profiles")


class ProfilesAsked(PageAsked):
    """Which profiles; each may be long, so fewer at once than of other things."""

    limit: int = Field(20, ge=1, le=100, description="Items of the page.")
    workload: str | None = Field(None, max_length=200)
    tenant: str | None = Field(None, max_length=100)
    since: float | None = Field(None, description="Taken at or after, in seconds since 1970.")
    until: float | None = Field(None, description="Taken before, in seconds since 1970.")


class ProfileGiven(Told):
    """A profile to keep. Its id is given anew unless the token is for all tenants."""

    profile: Profile
    tenant: str | None = None


class WorkloadList(Told):
    """Workloads, the last seen first."""

    items: list[SeenWorkload]


@router.reads("/profiles", PageOf[OwnedProfile])
def list_profiles(call: Caller, query: Annotated[ProfilesAsked, Query()]) -> Answer:
    """Profiles, newest first."""
    tenants = None if query.tenant is None else (query.tenant,)
    wanted = WantedProfiles(query.workload, query.since, query.until, tenants)
    return page_answer(call.scope, call.service.profiles.page_text(query.limit, wanted, query.after))


@router.makes("/profiles", Profile)
def keep_profile(call: Caller, body: ProfileGiven) -> Effect:
    """Keep a profile."""
    profiles = call.service.profiles
    return lambda: json_answer(profiles.save(body.profile, body.tenant), 201)


@router.reads("/profiles/{id}", OwnedProfile, tagged=True)
def get_profile(call: Caller, id: str) -> Answer:
    """One profile, by its id or the start of it."""
    return text_answer(call.service.profiles.text(id))


@router.reads("/workloads", WorkloadList)
@slow
def list_workloads(call: Caller) -> Answer:
    """Workloads, out of the newest profiles and jobs."""
    return json_answer({"items": call.service.workloads.list()})
