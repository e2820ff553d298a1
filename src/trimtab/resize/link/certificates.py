"""Certificates and tokens: the controller's own authority signs certificates for it and for each node.

A token lets one node join: one word with the address, the authority's fingerprint and a secret. Only a hash
of the secret is stored, in a file, so that a token can be made while the controller runs; it expires by the
monotonic clock, and after a boot, which sets that to zero, by the wall clock. Certificates are valid from 30
days before they are made, so that a clock that is behind, or is set back, does no harm.
"""

import contextlib
import datetime
import hashlib
import hmac
import json
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trimtab.core import BadInputError, Clock, RealClock, StorageError, split_address
from trimtab.kernel import boot_id, file_lock, write_whole

CONTROLLER = "trimtab-controller"  # the name in the controller's certificate, on any host
_BEFORE = datetime.timedelta(days=30)
_AFTER = datetime.timedelta(days=3650)
LIFETIME = 3600.0  # s
_LOCK_WAIT = 10.0  # s
_WORD = re.compile(r"tt1\.(?P<address>.{1,300})\.(?P<fingerprint>[0-9a-f]{64})\.(?P<secret>[0-9a-f]{32})")


class Authority:
    """The controller's keys and certificates in a folder; made when there are none.

    A node's name belongs to the certificate that was signed for it last: joining again replaces the former.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server_files = folder / "server.pem", folder / "server.key"
        try:
            self.is_new = not (folder / "authority.pem").exists()
            if self.is_new:
                self._make()
            key = serialization.load_pem_private_key((folder / "authority.key").read_bytes(), password=None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise ValueError("authority.key is not an elliptic-curve key")
            self._key = key
            self.certificate = (folder / "authority.pem").read_bytes()
            self.server_key = (folder / "server.key").read_bytes()
            self.server_certificate = (folder / "server.pem").read_bytes()
            self._subject = x509.load_pem_x509_certificate(self.certificate).subject
            self._nodes()
        except (OSError, ValueError) as error:
            raise StorageError(
                f"the controller's certificates in {folder} cannot be used: {error}; "
                "remove that folder, and let the nodes join again"
            ) from None

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.certificate)

    def sign(self, request: bytes) -> tuple[str, bytes]:
        """A node's name and its certificate, for a request signed with the node's own key."""
        try:
            signing_request = x509.load_pem_x509_csr(request)
            names = signing_request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            name = str(names[0].value) if len(names) == 1 else ""
            key = signing_request.public_key()
            if not signing_request.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey):
                raise ValueError
        except Exception:  # any error of the parser
            raise BadInputError(
                "the request for a certificate is damaged, or not signed by its own key"
            ) from None
        check_name(name)
        certificate = self._signed(name, key, ExtendedKeyUsageOID.CLIENT_AUTH)
        nodes = self._nodes() | {name: fingerprint(certificate)}
        write_whole(self._folder / "nodes.json", json.dumps(nodes))
        return name, certificate

    def knows(self, name: str, certificate: bytes) -> bool:
        """Whether that is the latest certificate of this node."""
        return hmac.compare_digest(self._nodes().get(name, ""), fingerprint(certificate))

    def _nodes(self) -> dict[str, str]:
        """Fingerprints by name; read every time, because other processes may add nodes."""
        file = self._folder / "nodes.json"
        data = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        if not isinstance(data, dict):
            raise ValueError("nodes.json is damaged")
        return data

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
    """Raise BadInputError for an invalid name of a node."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", name) or name == CONTROLLER:
        raise BadInputError(
            f'"{name:.70}" cannot be a node\'s name; '
            "give one of up to 63 lower-case letters, digits, dots and hyphens with --name"
        )


def fingerprint(certificate: bytes) -> str:
    """The SHA-256 of a certificate's DER form, in hexadecimal."""
    der = x509.load_pem_x509_certificate(certificate).public_bytes(serialization.Encoding.DER)
    return hashlib.sha256(der).hexdigest()


def make_private_folder(path: Path) -> None:
    """Make a folder that only its owner can enter, unless it exists."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from None


def write_secret(path: Path, content: bytes) -> None:
    """Write a file atomically that only its owner can read."""
    make_private_folder(path.parent)
    write_whole(path, content, mode=0o600)


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


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


@dataclass(frozen=True, slots=True)
class JoinToken:
    """Address, fingerprint and secret that a node needs to join."""

    address: str  # of the join server, "host:port"
    fingerprint: str
    secret: str

    def __str__(self) -> str:
        return f"tt1.{self.address}.{self.fingerprint}.{self.secret}"

    def __repr__(self) -> str:
        return f"Token({self.address})"  # without the secret, for logs

    @classmethod
    def parse(cls, word: str) -> "JoinToken":
        """The token in a word that `str` made."""
        match = _WORD.fullmatch(word.strip())
        if match is None:
            raise BadInputError("that is not a token; copy all of the word tt1.… that trimtab token prints")
        split_address(match["address"])
        return cls(match["address"], match["fingerprint"], match["secret"])


class _StoredToken(NamedTuple):
    """A row of the file of tokens; times are in seconds. Earlier versions wrote the first two values."""

    digest: str
    end: float  # wall clock
    boot: str = ""
    monotonic_end: float = 0.0  # since that boot


class JoinTokens:
    """Secrets of tokens that are not used yet."""

    def __init__(self, file: Path, clock: Clock | None = None) -> None:
        self._file = file
        self._clock = clock or RealClock()

    def new(self, lifetime: float = LIFETIME) -> str:
        """A new secret, valid for one node until it expires."""
        secret = secrets.token_hex(16)
        ends = self._clock.now() + lifetime, boot_id(), self._clock.monotonic() + lifetime
        with self._locked():
            self._write([*self._open(), _StoredToken(_hash(secret), *ends)])
        return secret

    def use(self, secret: str) -> None:
        """Use up a secret; BadInputError if it is wrong, used or expired."""
        digest = _hash(secret)
        with self._locked():
            valid = self._open()
            matches = [hmac.compare_digest(digest, token.digest) for token in valid]
            if not any(matches):
                raise BadInputError(
                    "this token is wrong, has been used, or has expired; make a new one with trimtab token"
                )
            self._write([token for token, match in zip(valid, matches, strict=True) if not match])

    def _open(self) -> list[_StoredToken]:
        """Tokens that have not expired."""
        try:
            data = json.loads(self._file.read_text(encoding="utf-8"))
            return [token for token in (_StoredToken(*row) for row in data) if self._is_valid(token)]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError) as error:
            raise StorageError(
                f"{self._file} cannot be read: {error}; remove it and make new tokens"
            ) from None

    def _is_valid(self, token: _StoredToken) -> bool:
        if token.boot and token.boot == boot_id():
            return self._clock.monotonic() < float(token.monotonic_end)
        return self._clock.now() < float(token.end)

    def _write(self, valid: list[_StoredToken]) -> None:
        write_secret(self._file, json.dumps(valid).encode())

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        make_private_folder(self._file.parent)
        busy = f"{self._file} is locked by another command; try again"
        return file_lock(self._file.with_suffix(".lock"), busy, _LOCK_WAIT)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
