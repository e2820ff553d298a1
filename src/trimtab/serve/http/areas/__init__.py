"""The areas of the API. One more is a file here, and a line below."""

from trimtab.serve.http.areas import (
    catalog,
    decisions,
    events,
    fleet,
    jobs,
    profiles,
    recommendations,
    tenants,
    tokens,
)

AREAS = (jobs, decisions, profiles, recommendations, events, fleet, catalog, tenants, tokens)
