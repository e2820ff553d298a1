"""The units: systemd's own checker takes them, and what they start is what the command accepts."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

UNITS = {"trimtab.service": 2.0, "trimtab-agent.service": 3.5, "trimtab-fabric@node-1.service": 7.5}
"""With the exposure, of 10, that `systemd-analyze security` may find at most."""

TRIMTAB = "/opt/trimtab/bin/trimtab"


def source(packaging: Path, unit: str) -> str:
    name = re.sub(r"@[^.]+", "@", unit)
    return (packaging / "systemd" / name).read_text(encoding="utf-8")


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze: apt-get install systemd")
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=60)


@pytest.fixture
def installed(packaging: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A unit as installed, but for where the command is: the checker looks whether it can be run."""

    def install(unit: str) -> Path:
        here = str(Path(sys.executable).with_name("trimtab"))
        path = tmp_path / unit
        path.write_text(source(packaging, unit).replace(TRIMTAB, here), encoding="utf-8")
        return path

    return install


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_nothing_wrong(installed: Callable[[str], Path], unit: str) -> None:
    done = analyze("verify", "--man=no", "--generators=no", str(installed(unit)))
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if unit in line]


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_exposed_no_more_than_it_has_to_be(installed: Callable[[str], Path], unit: str) -> None:
    words = ("security", "--offline=true", "--no-pager", f"--threshold={round(10 * UNITS[unit])}")
    done = analyze(*words, str(installed(unit)))
    assert done.returncode == 0, done.stdout[-200:]


def test_the_drop_in_for_local_jobs_fits_the_service(
    packaging: Path, tmp_path: Path, installed: Callable[[str], Path]
) -> None:
    path = installed("trimtab.service")
    folder = tmp_path / "trimtab.service.d"
    folder.mkdir()
    shutil.copy(packaging / "systemd" / "local-engine.conf", folder)
    done = analyze("verify", "--man=no", "--generators=no", str(path))
    assert done.returncode == 0, done.stderr
    assert "trimtab.service" not in done.stderr
    assert "local-engine.conf" not in done.stderr
    assert "KillMode=process" in (folder / "local-engine.conf").read_text(encoding="utf-8")


@pytest.mark.parametrize("unit", UNITS)
def test_what_a_unit_starts_is_what_the_command_accepts(
    packaging: Path, unit: str, accepts: Callable[[Sequence[str]], None]
) -> None:
    lines = re.findall(r"^Exec(?:StartPre|Start|StopPost)=(.+)$", source(packaging, unit), re.MULTILINE)
    assert lines
    for line in lines:
        program, *words = shlex.split(line)
        assert program == TRIMTAB
        accepts([word for word in words if not word.startswith("$")])


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_hardened_and_keeps_its_state(packaging: Path, unit: str) -> None:
    text = source(packaging, unit)
    for line in ("NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes"):
        assert f"\n{line}\n" in text
    state = re.search(r"^StateDirectory=(\S+)$", text, re.MULTILINE)
    assert state is not None
    assert f"Environment=TRIMTAB_HOME=/var/lib/{state[1]}\n" in text
