"""The authority and its certificates; tokens: one word, one node, for a while."""

import datetime
import json
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from trimtab.core import BadInputError, SimulatedClock, StorageError
from trimtab.resize.link.certificates import LIFETIME, Authority, JoinToken, JoinTokens
from trimtab.resize.link.joining import issue

FINGERPRINT = "ab" * 32
DAY = 86400.0  # s


def _request(*names: str) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
    request = x509.CertificateSigningRequestBuilder(subject).sign(
        ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()
    )
    return request.public_bytes(serialization.Encoding.PEM)


def test_it_is_made_once_and_its_keys_are_private(tmp_path: Path) -> None:
    first, again = Authority(tmp_path / "c"), Authority(tmp_path / "c")
    assert (first.is_new, again.is_new) == (True, False)
    assert first.fingerprint == again.fingerprint
    for key in (tmp_path / "c").glob("*.key"):
        assert key.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700


def test_a_node_gets_a_certificate_for_a_clock_that_is_behind(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    name, certificate = authority.sign(_request("node-1"))
    read = x509.load_pem_x509_certificate(certificate)
    assert name == "node-1"
    assert read.not_valid_before_utc < datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=23)
    read.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))


def test_a_name_belongs_to_the_certificate_signed_last(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    first, second = (issue(authority, "node", "h:1") for _ in range(2))
    for each in (authority, Authority(tmp_path)):
        assert not each.knows("node", first.certificate)
        assert each.knows("node", second.certificate)
        assert not each.knows("other", second.certificate)


@pytest.mark.parametrize(
    "request_bytes",
    [b"", b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", b"\xff" * 100],
)
def test_a_damaged_request_is_refused(tmp_path: Path, request_bytes: bytes) -> None:
    with pytest.raises(BadInputError, match="request"):
        Authority(tmp_path).sign(request_bytes)


@pytest.mark.parametrize(
    "names", [("trimtab-controller",), ("UPPER",), ("a b",), ("a", "b"), (), ("x" * 64,)]
)
def test_no_node_has_the_controllers_name_or_a_strange_one(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises((BadInputError, ValueError)):
        Authority(tmp_path).sign(_request(*names))


def test_damaged_keys_are_one_sentence(tmp_path: Path) -> None:
    Authority(tmp_path)
    (tmp_path / "authority.key").write_text("nothing")
    with pytest.raises(StorageError, match="join"):
        Authority(tmp_path)


@pytest.mark.parametrize("address", ["127.0.0.1:7434", "[::1]:80", "a-host.example:7434"])
def test_a_token_is_one_word_and_reads_back(address: str) -> None:
    token = JoinToken(address, FINGERPRINT, "0" * 32)
    assert JoinToken.parse(f" {token}\n") == token
    assert " " not in str(token)
    assert "0" * 32 not in repr(token)


@pytest.mark.parametrize(
    "word",
    [
        "",
        "tt1",
        "tt2.h:1." + FINGERPRINT + "." + "0" * 32,
        f"tt1.h:1.{FINGERPRINT}",
        f"tt1.h.{FINGERPRINT}.{'0' * 32}",
    ],
)
def test_another_word_is_refused_in_one_sentence(word: str) -> None:
    with pytest.raises(BadInputError):
        JoinToken.parse(word)


def test_a_secret_is_good_once_and_only_its_hash_is_kept(tmp_path: Path) -> None:
    tokens = JoinTokens(tmp_path / "tokens.json")
    first, second = tokens.new(), tokens.new()
    kept = (tmp_path / "tokens.json").read_text()
    assert first not in kept
    assert (tmp_path / "tokens.json").stat().st_mode & 0o777 == 0o600
    tokens.use(first)
    with pytest.raises(BadInputError, match="token"):
        tokens.use(first)
    JoinTokens(tmp_path / "tokens.json").use(second)  # another process's view


def test_a_secret_expires(tmp_path: Path) -> None:
    clock = SimulatedClock()
    tokens = JoinTokens(tmp_path / "tokens.json", clock)
    secret = tokens.new()
    clock.advance(LIFETIME)
    with pytest.raises(BadInputError, match="token"):
        tokens.use(secret)


@pytest.mark.parametrize("jump", [-DAY, DAY])
def test_a_jump_of_the_wall_clock_neither_ends_a_token_nor_prolongs_it(tmp_path: Path, jump: float) -> None:
    clock, jumped = SimulatedClock(1e9), SimulatedClock(1e9 + jump)
    secrets = [JoinTokens(tmp_path / "tokens.json", clock).new() for _ in range(2)]
    tokens = JoinTokens(tmp_path / "tokens.json", jumped)
    tokens.use(secrets[0])
    jumped.advance(LIFETIME)
    with pytest.raises(BadInputError, match="token"):
        tokens.use(secrets[1])


def test_after_a_boot_a_token_ends_by_the_wall_clock(tmp_path: Path) -> None:
    clock, file = SimulatedClock(1e9), tmp_path / "tokens.json"
    secret = JoinTokens(file, clock).new()
    file.write_text(json.dumps([row[:2] for row in json.loads(file.read_text())]))  # another boot, or version
    JoinTokens(file, SimulatedClock(1e9 + LIFETIME - 1)).use(secret)
    secret = JoinTokens(file, clock).new()
    file.write_text(json.dumps([[*row[:2], "another", row[3]] for row in json.loads(file.read_text())]))
    with pytest.raises(BadInputError, match="token"):
        JoinTokens(file, SimulatedClock(1e9 + LIFETIME)).use(secret)


def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text("{")
    with pytest.raises(StorageError, match=r"tokens\.json"):
        JoinTokens(tmp_path / "tokens.json").new()
