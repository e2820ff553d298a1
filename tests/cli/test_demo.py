"""`trimtab demo` as a user runs it, with a script that trains for a moment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.store import JobState, open_store

TRIMTAB = str(Path(sys.executable).parent / "trimtab")
SCRIPT = """
import torch

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
pictures = torch.utils.data.TensorDataset(torch.randn(4000, 8), torch.randint(2, (4000,)))
for picture, label in torch.utils.data.DataLoader(pictures, batch_size=8):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(picture), label).backward()
    optimizer.step()
print("trained")
"""


def _demo(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"TRIMTAB_HOME": str(home), "COLUMNS": "200"}
    command = [TRIMTAB, "demo", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=170)


@pytest.mark.slow
def test_a_demo_leaves_a_profile_a_recommendation_and_jobs_with_outcomes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = _demo(tmp_path / "home", "--script", str(script))
    assert done.returncode == 0, done.stderr
    with open_store(f"sqlite:///{tmp_path / 'home' / 'trimtab.sqlite'}") as store:
        assert store.profiles.latest().model is not None
        records = store.jobs.list(10)
        assert [record.state for record in records] == [JobState.ENDED] * 2
        assert all(store.ledger.outcomes(record.run.decision) for record in records)
        assert any(made.kind == "recommend" for made in store.ledger.list(20))


def test_a_script_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    done = _demo(tmp_path, "--script", str(tmp_path / "none.py"))
    assert done.returncode == 2
    assert "there is no script" in done.stderr
    assert "Traceback" not in done.stderr
