"""Hostile values of jobs, in a job file and in a request: each is refused at once, with its field."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from httpx import Client

from trimtab.core import BadInputError, SimulatedClock
from trimtab.schedule import NodeGroup, read_job_documents, submissions, submit_jobs
from trimtab.store import Store, Tenant

# The name of the field that the refusal must contain, and the part of the job that is wrong.
HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("resources.cpus", {"resources": {"cpus": math.inf}}),
    ("resources.cpus", {"resources": {"cpus": -math.inf}}),
    ("resources.cpus", {"resources": {"cpus": math.nan}}),
    ("resources.cpus", {"resources": {"cpus": 10**18}}),
    ("resources.cpus", {"resources": {"cpus": 10**400}}),
    ("resources.cpus", {"resources": {"cpus": "1e999"}}),
    ("resources.cpus", {"resources": {"cpus": 0}}),
    ("resources.cpus", {"resources": {"cpus": -1}}),
    ("resources.cpus", {"resources": {"cpus": 1e-300}}),
    ("resources.cpus", {"resources": {"cpus": True}}),
    ("resources.cpus", {"resources": {"cpus": [1]}}),
    ("resources.gpus", {"resources": {"gpus": -8}}),
    ("resources.gpus", {"resources": {"gpus": 10**18}}),
    ("resources.gpus", {"resources": {"gpus": "16..2"}}),
    ("resources.gpus", {"resources": {"gpus": math.nan}}),
    ("resources.gpus", {"resources": {"gpus": 1e-300}}),
    ("resources.share", {"resources": {"share": 1.5}}),
    ("resources.memory", {"resources": {"memory": "1e300 GiB"}}),
    ("resources.memory", {"resources": {"memory": -1}}),
    ("resources.memory", {"resources": {"memory": "much"}}),
    ("resources.accelerators", {"resources": {"accelerators": ["a100"] * 5_000}}),
    ("resources", {"resources": ["gpus", 8]}),
    ("workers", {"workers": "0..4"}),
    ("workers", {"workers": 10**18}),
    ("deadline", {"deadline": -60}),
    ("deadline", {"deadline": "2020-01-01"}),
    ("deadline", {"deadline": "9999-12-31T23:59:59Z"}),
    ("deadline", {"deadline": {"by": math.inf, "hard": True}}),
    ("deadline", {"deadline": {"by": 1e300}}),
    ("deadline", {"deadline": {"by": "6h", "hard": "perhaps"}}),
    ("priority", {"priority": 10**18}),
    ("kind", {"kind": "mining"}),
    ("budget", {"budget": "-$1"}),
    ("budget", {"budget": 1e300}),
    ("work", {"work": math.nan}),
    ("speeds", {"speeds": {"a100": math.inf}}),
    ("speeds", {"speeds": {"x" * 10_000: 1.0}}),
    ("retries", {"retries": 10**18}),
    ("retries", {"retries": "many"}),
    ("name", {"name": "a" * 100_000}),
    ("name", {"name": "a\x00b\x1b[2J"}),
    ("name", {"name": "../../etc/passwd"}),
    ("command", {"command": []}),
    ("command", {"command": "sh -c 'no end"}),
    ("command", {"command": ["true", "x" * 200_000]}),
    ("command", {"command": ["true\x00false"]}),
    ("environment", {"environment": {"A=B": "c"}}),
    ("environment", {"environment": {"A": "x" * 200_000}}),
    ("folder", {"folder": "/" + "x" * 5000}),
    ("checkpoint", {"checkpoint": {"signal": "KILL"}}),
    ("checkpoint", {"checkpoint": {"seconds": math.inf}}),
    ("data", {"data": {"size": "-1TB"}}),
    ("needs", {"needs": ["itself"]}),
    ("tenant", {"tenant": {"a": "b"}}),
]
IDS = [f"{number}-{field}" for number, (field, _) in enumerate(HOSTILE)]


@pytest.mark.parametrize(("field", "wrong"), HOSTILE, ids=IDS)
def test_a_hostile_value_in_a_job_file_is_refused_with_path_and_field(
    tmp_path: Path, field: str, wrong: dict[str, Any]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({"name": "a", "command": "true", **wrong}))
    with pytest.raises(BadInputError) as refused:
        read_job_documents(path)
    assert str(path) in str(refused.value)
    assert field in str(refused.value)
    assert len(str(refused.value)) < 500


def test_hostile_values_in_a_request_are_refused_and_nothing_is_queued(
    caller: Callable[..., Client], store: Store
) -> None:
    client = caller()
    for field, wrong in HOSTILE:
        body = json.dumps({"jobs": [{"name": "a", "command": "true", **wrong}]})
        answer = client.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 413, 422), (field, answer.status_code)
        assert answer.headers["content-type"] == "application/problem+json"
        text = answer.text
        # JSON has no NaN or infinity, and no request may hold NUL: such a body is refused as a whole.
        assert any(part in text for part in (field, "JSON", "NUL")), (field, text)
    assert store.jobs.active() == ()


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS + "name: a\ncommand: *a11\n",
        "name: a\ncommand: &c [*c]\n",
        "name: a\ncommand: " + "[" * 5000 + "]" * 5000 + "\n",
        "name: a\ncommand: 'true'\nfolder: " + "x" * 2_000_000 + "\n",
        "name: a\ncommand: !!python/object/apply:os.system ['true']\n",
        "name: a\n\tcommand: 'true'\n",
        "\x00\x01\x02",
        "- name: a\n",
        "",
    ],
    ids=["laughs", "circle", "deep", "long", "object", "tab", "bytes", "list", "empty"],
)
def test_a_hostile_file_is_refused_by_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(BadInputError) as refused:
        read_job_documents(path)
    assert str(path) in str(refused.value)
    assert len(str(refused.value)) < 1000


GROUPS = (NodeGroup("8xa100", "a100", 2, 8, 64.0, 2.0**38),)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"resources": {"gpus": 17}}, "17"),
        ({"resources": {"cpus": 65}}, "65"),
        ({"resources": {"memory": "257GiB"}}, "257"),
        ({"resources": {"gpus": 1, "accelerators": "h100"}}, "h100"),
        ({"resources": {"gpus": 5}, "tenant": "small"}, "small"),
        (
            {
                "resources": {"gpus": 1},
                "work": 1000,
                "speeds": {"a100": 1},
                "deadline": {"by": "60s", "hard": True},
            },
            "deadline",
        ),
    ],
    ids=["accelerators", "cpus", "memory", "kind", "quota", "deadline"],
)
def test_what_can_never_run_is_refused_at_submission(store: Store, job: dict[str, Any], words: str) -> None:
    store.tenants.put(Tenant("small", limit=4.0))
    possible = submissions([{"name": "a", "command": "true", "resources": {"gpus": 4}}], "the request")
    submit_jobs(store, possible, GROUPS, SimulatedClock())
    before = len(store.jobs.active())
    with pytest.raises(BadInputError, match=words):
        submit_jobs(
            store, submissions([{"name": "a", "command": "true", **job}], "x"), GROUPS, SimulatedClock()
        )
    assert len(store.jobs.active()) == before
