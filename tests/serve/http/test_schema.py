"""Whatever a stranger sends that reads the API's description: no error of ours, and answers as described."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import HookContext
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from trimtab.core import Answer, Decision, Estimate, Host, Kind, Profile, Series, Workload
from trimtab.serve.access import LOCAL
from trimtab.serve.http import HttpApplication
from trimtab.serve.http.openapi import document
from trimtab.serve.operations import Backend, Service
from trimtab.serve.processes.server import listening
from trimtab.serve.settings import Settings
from trimtab.store import Role, Store, open_store

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    unsupported_method,
]
ACCEPTED = ["2xx", "3xx", 401, 403, 404, 409, 429, "5xx"]
REFUSED = [400, 401, 403, 404, 405, 406, 409, 415, 422, 428, 429, "5xx"]
_EXAMPLES = int(os.environ.get("TRIMTAB_SCHEMA_EXAMPLES", "12"))

# Whether a condition on an ETag holds depends on the state, as whether an id is known.
CONFIG = SchemathesisConfig.from_dict(
    {
        "checks": {
            "positive_data_acceptance": {"expected-statuses": [*ACCEPTED, 412, 428]},
            "negative_data_rejection": {"expected-statuses": [*REFUSED, 412]},
        }
    }
)
schema = schemathesis.openapi.from_dict(document(), config=CONFIG).exclude(path="/v1/events/stream")


@schema.hook
def map_body(context: HookContext, body: Any) -> Any:
    """Bodies whose estimates are in order, which no JSON schema can say."""
    if isinstance(body, list):
        return [map_body(context, item) for item in body]
    if not isinstance(body, dict):
        return body
    body = {name: map_body(context, value) for name, value in body.items()}
    ends = [body.get(name) for name in ("low", "value", "high")]
    if all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
        body |= dict(zip(("low", "value", "high"), sorted(ends), strict=True))  # type: ignore[type-var]
    return body


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """Where it is served, and the headers of an admin."""
    folder: Path = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch, open_store(f"sqlite:///{folder}/trimtab.sqlite") as store:
        patch.setenv("TRIMTAB_HOME", str(folder))
        fill(store)
        _, text = store.tokens.make("stranger", "*", Role.ADMIN)
        result = Settings(listen="127.0.0.1:0", dashboard=False, rate_limit=0.0)
        with listening(HttpApplication(store, result), result) as server:
            yield f"http://127.0.0.1:{server.port}", {"Authorization": f"Bearer {text}"}


def fill(store: Store) -> None:
    """One thing of each kind under a name that is guessed at times."""
    output = {"time": Estimate(10.0, 8.0, 12.0, 0.9, "s")}
    rule = Answer("rule:analytic", {"nodes": 1}, output)
    made = Decision("0", 1.0, "recommend", "0", {"nodes": 1}, output, "rule:x", rule, rule, (rule,), "why")
    store.ledger.record(made)
    work = Workload("0", Kind.TRAINING, command=("true",))
    store.profiles.save(
        Profile("0", 1.0, work, Host("cpu", 2, 1e9), 1, 1, "cgroup-v1", "exited", 0, Series())
    )
    service = Service(Backend(store), LOCAL)
    service.jobs.submit([{"name": "0", "command": "true"}])
    service.tenants.put("0")
    for kind in ("alert.raised", "service.started"):
        store.events.append(kind, "0", {"why": "0"}, 1.0)


@pytest.mark.slow
@schema.parametrize()
@settings(
    max_examples=_EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_what_a_stranger_sends_is_answered_as_described(
    case: schemathesis.Case, calls: tuple[str, dict[str, str]]
) -> None:
    url, headers = calls
    case.call_and_validate(base_url=url, headers=headers, checks=CHECKS, timeout=60)
