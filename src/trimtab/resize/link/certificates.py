"""Who may speak: an authority of the controller's own signs a certificate for it and for every node.

Certificates are valid from a day before they are made, so that a node whose clock is behind can join.
"""

import contextlib
import datetime
import hashlib
import hmac
import json
import os
import re
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trimtab.core import BadInputError, StorageError
from trimtab.kernel import write_whole

CONTROLLER = "trimtab-controller"  # the name in the controller's certificate, wherever it runs
_BEFORE = datetime.timedelta(days=1)
_AFTER = datetime.timedelta(days=3650)


class Authority:
    """The controller's keys and certificates, kept in a folder; made when there are none.

    A node's name belongs to the certificate that was signed for it last: joining again replaces the former.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server_files = folder / "server.pem", folder / "server.key"
        try:
            self.is_new = not (folder / "authority.pem").exists()
            if self.is_new:
                self._make()
            self._key = _private((folder / "authority.key").read_bytes())
            self.certificate = (folder / "authority.pem").read_bytes()
            self.server_key = (folder / "server.key").read_bytes()
            self.server_certificate = (folder / "server.pem").read_bytes()
            self._subject = x509.load_pem_x509_certificate(self.certificate).subject
            self._nodes()
        except (OSError, ValueError) as error:
            raise StorageError(
                f"the controller's certificates in {folder} cannot be used: {error}; "
                "remove that folder, and let the nodes join anew"
            ) from None

    @property
    def fingerprint(self) -> str:
        """What a node compares the authority's certificate with before it believes it."""
        return fingerprint(self.certificate)

    def sign(self, request: bytes) -> tuple[str, bytes]:
        """A node's name and its certificate, for a request signed with the node's own key."""
        try:
            wanted = x509.load_pem_x509_csr(request)
            names = wanted.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            name = str(names[0].value) if len(names) == 1 else ""
            key = wanted.public_key()
            if not wanted.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey):
                raise ValueError
        except Exception:  # whatever a parser of foreign bytes may raise
            raise BadInputError(
                "the request for a certificate is damaged, or not signed by its own key"
            ) from None
        check_name(name)
        certificate = self._signed(name, key, ExtendedKeyUsageOID.CLIENT_AUTH)
        nodes = self._nodes() | {name: fingerprint(certificate)}
        write_whole(self._folder / "nodes.json", json.dumps(nodes))
        return name, certificate

    def knows(self, name: str, certificate: bytes) -> bool:
        """Whether that is the certificate signed last for this node."""
        return hmac.compare_digest(self._nodes().get(name, ""), fingerprint(certificate))

    def _nodes(self) -> dict[str, str]:
        """Fingerprints by name; read anew, because nodes may have been added beside a running controller."""
        file = self._folder / "nodes.json"
        told = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        if not isinstance(told, dict):
            raise ValueError("nodes.json is damaged")
        return told

    def _make(self) -> None:
        make_private_folder(self._folder)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _named("trimtab authority")
        server = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(CONTROLLER, server.public_key(), ExtendedKeyUsageOID.SERVER_AUTH)
        write_secret(self._folder / "server.key", _pem(server))
        write_whole(self._folder / "server.pem", certificate)
        write_secret(self._folder / "authority.key", _pem(self._key))
        builder = _builder(self._subject, self._subject, self._key.public_key(), is_authority=True)
        own = builder.sign(self._key, hashes.SHA256())
        write_whole(self._folder / "authority.pem", own.public_bytes(serialization.Encoding.PEM))

    def _signed(self, name: str, key: ec.EllipticCurvePublicKey, use: x509.ObjectIdentifier) -> bytes:
        builder = _builder(self._subject, _named(name), key, is_authority=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=True)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)


def request_certificate(name: str) -> tuple[bytes, bytes]:
    """A node's new key, and the request for its certificate."""
    check_name(name)
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder(_named(name)).sign(key, hashes.SHA256())
    return _pem(key), request.public_bytes(serialization.Encoding.PEM)


def check_name(name: str) -> None:
    """Refuse what cannot be a node's name."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", name) or name == CONTROLLER:
        raise BadInputError(
            f'"{name:.70}" cannot be a node\'s name; '
            "it has up to 63 lower-case letters, digits, dots and hyphens; give one with --name"
        )


def fingerprint(certificate: bytes) -> str:
    """The SHA-256 of a certificate, whatever way its text is broken into lines."""
    inside = x509.load_pem_x509_certificate(certificate).public_bytes(serialization.Encoding.DER)
    return hashlib.sha256(inside).hexdigest()


def make_private_folder(path: Path) -> None:
    """Make a folder that only its owner can enter, unless there is one."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from None


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, all of it or nothing."""
    temporary = ""
    try:
        make_private_folder(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise StorageError(f"{path} cannot be written: {error.strerror}") from None


def _builder(
    issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey, is_authority: bool
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _AFTER)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), True)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _private(text: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(text, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is of another kind")
    return key


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
