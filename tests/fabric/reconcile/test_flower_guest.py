"""What `test_flower_plane` says, said of a kernel that has what the plane needs: it runs in a guest."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from guest import REPOSITORY, guest_unavailable, run_in_guest

HERE = Path(__file__).resolve().parent.relative_to(REPOSITORY)
MODULES = ("veth", "bridge", "vxlan", "sch_ingress", "cls_flower", "act_tunnel_key", "act_mirred")
LACKING = {"test_a_kernel_without_it_refuses_in_a_sentence", "test_a_reconciler_with_it_says_so_and_goes_on"}
"""Tests of a kernel that has it not."""
SECONDS = 400.0
"""It takes a tenth of that where it has a core to itself."""


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 20)
def test_the_flower_plane_holds_in_a_kernel_that_has_flower(tmp_path: Path) -> None:
    reason = guest_unavailable()
    if reason is not None:
        pytest.skip(reason)
    python = ["env", "PYTHONDONTWRITEBYTECODE=1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", "TMPDIR=/run"]
    python += [
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        sys.executable,
        "-m",
        "pytest",
        "--tb=short",
        "--assert=plain",
    ]
    python += ["-p", "no:cacheprovider", f"--confcutdir={HERE}", "--junitxml=/run/out/results.xml"]
    output = run_in_guest([*python, str(HERE / "test_flower_plane.py")], MODULES, tmp_path, SECONDS)
    results = tmp_path / "out" / "results.xml"
    assert results.exists(), output[-4000:]
    cases = list(ElementTree.parse(results).iter("testcase"))
    failed = [case.get("name") for case in cases if {part.tag for part in case} & {"failure", "error"}]
    assert failed == [], output[-4000:]
    skipped = {case.get("name") for case in cases if case.find("skipped") is not None}
    assert skipped == LACKING, output[-4000:]
    assert len(cases) >= 10
