"""Whatever a stranger sends that reads the API's description: no error of ours, and answers as described."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from trimtab.core import Answer, Decision, Estimate, Host, Kind, Profile, Series, Workload
from trimtab.serve.access import LOCAL
from trimtab.serve.http import Application
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
    unsupported_method,
]
_EXAMPLES = 12

schema = schemathesis.openapi.from_dict(document()).exclude(path="/v1/events/stream")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """Where it is served, and the headers of an admin."""
    folder: Path = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch, open_store(f"sqlite:///{folder}/trimtab.sqlite") as store:
        patch.setenv("TRIMTAB_HOME", str(folder))
        fill(store)
        _, text = store.tokens.make("stranger", "*", Role.ADMIN)
        told = Settings(listen="127.0.0.1:0", dashboard=False, rate_limit=0.0)
        with listening(Application(store, told), told) as server:
            yield f"http://127.0.0.1:{server.port}", {"Authorization": f"Bearer {text}"}


def fill(store: Store) -> None:
    """One thing of each kind under a name that is guessed at times."""
    said = {"time": Estimate(10.0, 8.0, 12.0, 0.9, "s")}
    rule = Answer("rule:analytic", {"nodes": 1}, said)
    made = Decision("0", 1.0, "recommend", "0", {"nodes": 1}, said, "rule:x", rule, rule, (rule,), "why")
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
    case: schemathesis.Case, asked: tuple[str, dict[str, str]]
) -> None:
    url, headers = asked
    case.call_and_validate(base_url=url, headers=headers, checks=CHECKS, timeout=60)
