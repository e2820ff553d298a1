"""Something that has changed, and its event in the store: only one for the same evidence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trimtab.store import Event, Store

DRIFT = "drift"  # the kind of event
USUAL_TENANT = "default"  # whose events are those of who works alone


@dataclass(frozen=True, slots=True)
class Finding:
    """What has changed, about whom, in a sentence, in numbers, and by which evidence."""

    name: str
    subject: str
    sentence: str
    numbers: Mapping[str, float]
    evidence: tuple[str, ...]


def raise_events(
    store: Store,
    events: Iterable[Event],
    findings: Iterable[Finding],
    now: float,
    tenant: str = USUAL_TENANT,
) -> list[Finding]:
    """Write down what is new for a tenant; a finding whose evidence an earlier event has used is not."""
    used: dict[tuple[str, str], set[str]] = {}
    for event in events:
        if event.kind == DRIFT:
            key = (str(event.detail.get("name")), event.subject)
            used.setdefault(key, set()).update(event.detail.get("evidence", ()))
    new = [each for each in findings if used.get((each.name, each.subject), set()).isdisjoint(each.evidence)]
    for each in new:
        detail = {"name": each.name, "sentence": each.sentence, "numbers": dict(each.numbers)}
        store.events.append(DRIFT, each.subject, {**detail, "evidence": list(each.evidence)}, now, tenant)
    return new
