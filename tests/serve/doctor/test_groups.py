"""Each group: what it sees when something is wrong, made wrong for real."""

import datetime
import os
import socket
import sqlite3
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from trimtab.serve import Finding, FindingState, Settings, examine
from trimtab.serve.doctor.installation import EXTRAS, extras
from trimtab.store import look_at_store, open_store
from trimtab.store.tables import VERSION_TABLE

ROOT = Path(__file__).resolve().parent.parent.parent.parent


def observed(group: str, settings: Settings | None = None) -> dict[str, Finding]:
    (examined,) = examine(settings or Settings(), [group])
    return {finding.what: finding for finding in examined.findings}


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def certificate(folder: Path) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    day = datetime.timedelta(days=1)
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    folder.mkdir(exist_ok=True)
    (folder / "key.pem").write_bytes(secret)
    (folder / "certificate.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return str(folder / "certificate.pem"), str(folder / "key.pem")


def test_every_extra_for_users_is_looked_at() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    result = set(project["optional-dependencies"]) - {"test", "all"}
    assert set(EXTRAS) == result
    assert "fastapi" in extras()["serve"]


def test_an_extra_that_the_settings_need_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.serve.doctor.installation.distributions", list)
    assert not observed("python")["extra postgres"].needed
    found = observed("python", Settings(store="postgresql://host/db"))["extra postgres"]
    assert (found.state, found.needed) == (FindingState.MISSING, True)
    assert found.mend == "pip install 'trimtab[postgres]'"


def test_a_certificate_must_be_that_of_its_key(tmp_path: Path) -> None:
    first, second = certificate(tmp_path / "a"), certificate(tmp_path / "b")
    right = Settings(tls_certificate=first[0], tls_key=first[1])
    assert observed("settings", right)["TLS certificate"].state is FindingState.OK
    for wrong in (
        Settings(tls_certificate=first[0], tls_key=second[1]),
        Settings(tls_certificate="no", tls_key="no"),
    ):
        found = observed("settings", wrong)["TLS certificate"]
        assert (found.state, found.needed) == (FindingState.MISSING, True)


def test_pools_and_names_are_read(tmp_path: Path) -> None:
    assert (
        observed("settings", Settings(pools=str(tmp_path / "none.yaml")))["pools"].state
        is FindingState.MISSING
    )
    assert observed("settings", Settings(policy="sooner"))["settings"].needed


def test_a_store_is_looked_at_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "home" / "trimtab.sqlite"
    assert "not there yet" in observed("store")["store"].seen
    assert not path.parent.exists()
    with open_store():
        before = sorted(path.parent.iterdir())
        assert "schema" in observed("store")["store"].seen  # while another has it open
        assert sorted(path.parent.iterdir()) == before
    left = {item: item.read_bytes() for item in path.parent.iterdir()}
    assert look_at_store().revision == look_at_store().newest
    assert {item: item.read_bytes() for item in path.parent.iterdir()} == left


def test_a_store_of_a_newer_trimtab_or_of_somebody_else_is_missing(tmp_path: Path) -> None:
    with open_store():
        pass
    path = tmp_path / "home" / "trimtab.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    found = observed("store")["store"]
    assert (found.state, found.needed) == (FindingState.MISSING, True)
    assert "newer" in found.seen
    path.write_text("not a database " * 100, encoding="utf-8")
    assert observed("store")["store"].state is FindingState.MISSING


def test_a_database_that_does_not_answer_is_missing_and_its_password_unsaid() -> None:
    found = observed("store", Settings(store="postgresql://me:geheim@127.0.0.1:1/trimtab"))["store"]
    assert (found.state, found.needed) == (FindingState.MISSING, True)
    assert "geheim" not in found.seen


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    assert (
        observed("store", Settings(store=f"sqlite:///{folder}/x.sqlite"))["writing"].state
        is FindingState.MISSING
    )


def test_a_port_that_somebody_has_is_missing(taken: str) -> None:
    found = observed("ports", Settings(listen=taken))[f"listen {taken}"]
    assert (found.state, found.needed) == (FindingState.MISSING, True)
    assert "TRIMTAB_LISTEN=" in found.mend
    assert observed("ports", Settings(listen="127.0.0.1:0"))["listen 127.0.0.1:0"].state is FindingState.OK


def test_with_pools_their_ports_are_looked_at_too(taken: str) -> None:
    found = observed("ports", Settings(listen="127.0.0.1:0", pools="p.yaml", agents_listen=taken))
    assert found[f"agents_listen {taken}"].state is FindingState.MISSING
    assert any(what.startswith("agents_join") for what in found)


def test_groups_are_needed_by_jobs_on_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.serve.doctor.machine.find_hierarchy", lambda: None)
    assert observed("cgroups", Settings(engine="local://"))["control groups"].needed
    assert not observed("cgroups", Settings(engine="slurm://"))["control groups"].needed


def test_programs_are_looked_for_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert observed("programs")["runc"].state is FindingState.MISSING
    assert not observed("programs")["sbatch"].needed
    assert observed("programs", Settings(engine="slurm://"))["sbatch"].needed
    assert "no ip and no tc" in observed("network")["kernel features"].seen


def test_the_clock_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    found = observed("clock")
    assert found["date"].state is FindingState.OK
    assert found["resolution"].state is FindingState.OK
    monkeypatch.setattr("trimtab.serve.doctor.machine.time.time", lambda: 0.0)
    assert observed("clock")["date"].state is FindingState.MISSING
    assert observed("clock")["jumps"].state is FindingState.WARNING
