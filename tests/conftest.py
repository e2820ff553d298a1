"""What more than one package's tests need: a home of their own, profiles of real models, offers."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, open_browser
from hypothesis import settings

from trimtab.core import Host, MissingDependencyError, Offer, Profile, Series, Steps, Workload
from trimtab.fabric.frr.daemons import find_programs
from trimtab.kernel import Hierarchy, LimitedGroup, NetworkNamespace, NoGroupError, NoNamespaceError
from trimtab.predict import BUNDLED_STEPS, MeasuredStep, read_measurements

settings.register_profile("trimtab", deadline=None)  # a busy machine is no defect
settings.load_profile("trimtab")

REPOSITORY = Path(__file__).resolve().parent.parent
MACHINE = (
    *(
        "bench/fabric",
        "bench/test_resize_agents",
        "bench/test_live",
        "bench/test_profile_overhead",
        "bench/test_resize",
    ),
    *("cli/", "engines/", "fabric/frr", "fabric/lab", "fabric/test_agent", "kernel/", "observe/"),
    *("collect/", "tune/", "resize/"),
)
"""Tests that make control groups, daemons and servers, and must not do so side by side."""
LARGE = ("fabric/", "serve/")
"""Rooms that take minutes, with nothing dear to share: their parts may be in either worker."""


SECOND_TIER = (
    "bench/",
    "cli/test_collect.py::test_after_ctrl_c_or_a_kill_nothing_is_left",
    "cli/test_demo",
    "cli/test_partition.py::test_a_model_is_split_trained_and_proven_equal",
    "cli/test_pipeline.py::test_a_profile_from_elsewhere_stands_for_a_stage",
    "cli/test_pipeline.py::test_ctrl_c_keeps_what_was_finished",
    "cli/test_pipeline.py::test_requests_are_written_decided_and_judged",
    "cli/test_pipeline.py::test_the_digits_example_runs_and_is_sized",
    "cli/test_profile.py::test_a_model_is_profiled_without_a_script",
    "cli/test_profile.py::test_what_a_killed_trimtab_leaves",
    "cli/test_simulate.py::test_ctrl_c_shows_what_was_finished",
    "cli/test_tune.py::test_a_session_that_ends_early_goes_on",
    "cli/test_tune.py::test_trials_run_on_slurm",
    "collect/functions/test_lane.py::test_a_size_too_small",
    "collect/shapes/test_measuring",
    "engines/test_jobfile_script.py::test_two_nodes_meet_under_torchrun",
    "engines/test_ray",
    "engines/test_slurm_engine.py::test_a_controller_that_goes_away",
    "engines/test_slurm_engine.py::test_what_slurm_has_forgotten",
    "engines/test_slurm_engine.py::test_workers_that_are_to_start",
    "examples/",
    "fabric/lab/test_echo",
    "fabric/reconcile/test_flower_guest",
    "observe/test_scripts",
    "partition/run/test_running",
    "partition/test_exports.py::test_the_script_trains_under_torchrun_and_keeps_the_weights",
    "predict/fewshot/test_pretraining",
    "resize/link/test_remote",
    "serve/test_postgresql.py::test_a_database_that_is_killed",
    "test_architecture.py::test_the_checkers_find_nothing",
)
"""Tests that only `make test-all` runs: an emulated kernel, Ray, trainings, outages, benches, linters."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the second tier."""
    for item in items:
        path = item.nodeid.removeprefix("tests/")
        if path.startswith(SECOND_TIER) or "[ray" in path:
            item.add_marker("second_tier")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With two workers, what touches the machine stays in one, and a room's dear fixtures are made once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByRoom(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.split("::")[0].removeprefix("tests/")
            parts = path.split("/")[: 2 if path.startswith(LARGE) else 1]
            return "machine" if path.startswith(MACHINE) else "/".join(parts)

    return ByRoom(config, log)


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the user's home, store or terminal width."""
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRIMTAB_STORE", raising=False)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def new_group() -> Iterator[Callable[..., LimitedGroup]]:
    """Control groups of our own, for tests that need them of a certain version; removed at the end."""
    with ExitStack() as stack:

        def make(version: int | None = None, below: Hierarchy | None = None) -> LimitedGroup:
            try:
                group = stack.enter_context(LimitedGroup.create(below))
            except NoGroupError as error:
                pytest.skip(f"needs the right to make control groups: {error}")
            if version not in (None, group.version):
                pytest.skip(f"needs control groups of version {version}")
            return group

        yield make


@pytest.fixture
def limits() -> None:
    """Skips where no control group or network can be made."""
    try:
        LimitedGroup.create().remove()
        with NetworkNamespace():
            pass
    except (NoGroupError, NoNamespaceError) as error:
        pytest.skip(f"needs root: {error}")


@pytest.fixture(scope="session")
def can_build() -> None:
    """Skips where no lab of the fabric can be built."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a lab is made of network namespaces")
    try:
        find_programs()
    except MissingDependencyError as error:
        pytest.skip(f"needs FRR: {error}")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A real browser to look at pages with."""
    with open_browser(tmp_path_factory.mktemp("pages")) as opened:
        yield opened


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public data sets, where there is one."""
    folder = Path(os.environ.get("TRIMTAB_DATA") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no data sets at {folder}; TRIMTAB_DATA names another folder")
    return folder


@pytest.fixture(scope="session")
def measured() -> list[MeasuredStep]:
    """The bundled measurements."""
    return read_measurements(BUNDLED_STEPS)


@pytest.fixture
def make_profile(measured: list[MeasuredStep]) -> Callable[..., Profile]:
    """A profile of one of the measured models, as a run on two CPU cores would show it."""

    def make(model: str = "resnet50", **steps: object) -> Profile:
        row = next(r for r in measured if r.name == model and r.device == "cpu")
        seen = Steps(
            seconds=(row.seconds or 1.0,) * 5,
            batch_size=row.batch,
            workers=1,
            device="cpu",
            dataset_length=100_000,
            epochs=10.0,
        )
        return Profile(
            id=f"profile-{model}",
            created=1_700_000_000.0,
            workload=Workload(model, command=("python", "train.py", "--batch-size", str(row.batch))),
            host=Host("a CPU", 2.0, 16e9),
            window=30.0,
            every=1.0,
            method="process-tree",
            ended="interrupted",
            status=130,
            series=Series(time=(0.0, 1.0), cpu=(2.0, 2.0), memory=(1e9, 2e9)),
            model=row.model,
            steps=replace(seen, **steps),  # type: ignore[arg-type]
        )

    return make


@pytest.fixture
def make_offer() -> Callable[..., Offer]:
    """An offer of one T4 at a dollar an hour, but for what the test says."""

    def make(**changes: object) -> Offer:
        offer = Offer(
            cloud="aws",
            region="us-east-1",
            instance="g4dn.xlarge",
            vcpus=4.0,
            memory=16 * 2**30,
            accelerator="T4",
            accelerators=1,
            price=1.0 / 3600,
            spot_price=0.4 / 3600,
            network=25e9 / 8,
            price_date=date(2026, 8, 22),
        )
        return replace(offer, **changes)  # type: ignore[arg-type]

    return make
