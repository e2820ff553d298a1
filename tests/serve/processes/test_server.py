"""Requests that are too large, too slow, too many, or break off."""

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from driven_loop import until
from httpx import Client, HTTPError

from trimtab.core import BadInputError
from trimtab.serve.http import HttpApplication, middleware
from trimtab.serve.processes.server import listening, server_config
from trimtab.serve.settings import Settings
from trimtab.store import Role, Store

AS_JSON = {"Content-Type": "application/json"}


def connected(url: str) -> socket.socket:
    host, _, port = url.partition("://")[2].partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def all_of(connection: socket.socket) -> bytes:
    """What the other side says until it hangs up."""
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def test_a_body_that_is_too_large_is_refused_by_its_length_and_without_one(serve) -> None:  # type: ignore[no-untyped-def]
    url = serve(body_limit=2000)
    with Client(base_url=url) as client:
        assert client.post("/v1/jobs", content=b" " * 2001, headers=AS_JSON).status_code == 413
        chunked = client.post("/v1/jobs", content=iter([b" " * 500] * 5), headers=AS_JSON)
        assert chunked.status_code == 413
        assert chunked.headers["content-type"] == "application/problem+json"
        assert client.get("/v1/jobs").status_code == 200


def test_a_body_that_dawdles_is_given_up(serve, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(middleware, "BODY_TIMEOUT", 0.3)
    url = serve()
    with connected(url) as slow:
        head = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        slow.sendall(head + b"Content-Length: 100\r\n\r\n{")
        assert b" 408 " in all_of(slow).split(b"\r\n")[0]


def test_a_port_that_another_program_has_is_refused_also_while_others_are_not_listened_to(
    store: Store,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = Settings(listen=f"0.0.0.0:{taken.getsockname()[1]}", insecure=True, dashboard=False)
        with (
            pytest.raises(BadInputError, match=str(taken.getsockname()[1])),
            listening(HttpApplication(store, result), result),
        ):
            pass


def test_a_request_that_breaks_off_does_nothing(serve, store: Store) -> None:  # type: ignore[no-untyped-def]
    url = serve()
    with connected(url) as cut:
        head = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        cut.sendall(head + b'Content-Length: 100\r\n\r\n{"jobs": [{"name"')
    with Client(base_url=url) as client:
        assert client.get("/v1/jobs").json()["items"] == []
    with connected(url) as noise:
        noise.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        assert b"400" in all_of(noise).split(b"\r\n")[0]


def test_who_asks_too_often_is_told_when_to_come_back(serve, store: Store) -> None:  # type: ignore[no-untyped-def]
    url = serve(rate_limit=1.0)
    _, text = store.tokens.make("hasty", "a", Role.VIEWER)
    _, other = store.tokens.make("calm", "b", Role.VIEWER)
    with Client(base_url=url, headers={"Authorization": f"Bearer {text}"}) as hasty:
        answers = [hasty.get("/v1/jobs") for _ in range(30)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert int(refused[0].headers["retry-after"]) >= 1
        assert hasty.get("/v1/jobs", headers={"Authorization": f"Bearer {other}"}).status_code == 200


def test_who_tries_tokens_out_is_slowed_down(  # type: ignore[no-untyped-def]
    serve, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "UNKNOWN_RATE", 1.0)
    url = serve()
    store.tokens.make("ci", "a", Role.VIEWER)
    with Client(base_url=url, headers={"Authorization": "Bearer tt_000000000000_guess"}) as guessing:
        statuses = {guessing.get("/v1/jobs").status_code for _ in range(30)}
    assert statuses == {401, 429}


def certificate(folder: Path) -> tuple[Path, Path]:
    """One for 127.0.0.1, signed by itself."""
    from ipaddress import ip_address

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trimtab")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    )
    return paths


def test_it_is_served_by_tls_and_then_by_tls_alone(serve, store: Store, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    public, private = certificate(tmp_path)
    result = {"tls_certificate": str(public), "tls_key": str(private)}
    url = serve(**result)
    settings = Settings(dashboard=False, **result)  # type: ignore[arg-type]
    offered = server_config(HttpApplication(store, settings), settings).ssl
    assert offered is not None
    assert offered.minimum_version >= ssl.TLSVersion.TLSv1_2
    trust = ssl.create_default_context(cafile=str(public))
    with Client(base_url=url, verify=trust) as client:
        answer = client.get("/v1/jobs")
        assert answer.status_code == 200
        assert "strict-transport-security" in answer.headers
    with connected(url) as plain:
        plain.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200" not in all_of(plain)


def reached(client: Client, url: str, headers: dict[str, str]) -> bool:
    """Whether anybody listens there."""
    try:
        client.get(url, headers=headers)
        return True
    except HTTPError:
        return False


def test_others_are_listened_to_once_there_is_a_token(store: Store) -> None:
    result = Settings(listen="0.0.0.0:0", insecure=True, dashboard=False)
    with listening(HttpApplication(store, result), result) as server:
        elsewhere = f"http://127.0.0.2:{server.port}/v1/jobs"  # this machine, but not where it listens
        with Client(timeout=5) as client:
            assert client.get(f"http://127.0.0.1:{server.port}/v1/jobs").status_code == 200
            with pytest.raises(Exception, match="refused"):
                client.get(elsewhere)
            _, text = store.tokens.make("first", "*", Role.ADMIN)
            headers = {"Authorization": f"Bearer {text}"}
            until(lambda: reached(client, elsewhere, headers))
            assert client.get(elsewhere, headers=headers).status_code == 200
            assert client.get(elsewhere).status_code == 401
