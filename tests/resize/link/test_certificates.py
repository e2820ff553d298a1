"""The authority: keys that only their owner reads, certificates for nodes and for nobody else."""

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from trimtab.core import BadInputError, StorageError
from trimtab.resize.link.certificates import Authority
from trimtab.resize.link.joining import issue


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
    with pytest.raises(BadInputError, match="damaged"):
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
    with pytest.raises(StorageError, match="let the nodes join anew"):
        Authority(tmp_path)
