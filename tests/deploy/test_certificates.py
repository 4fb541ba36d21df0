"""Certificates that TLS accepts for the right names alone, and keys as Flower reads them."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tacit.deploy import certificates
from tacit.deploy.certificates import Credential, authority, node_key, server
from tacit.errors import InvalidFile, InvalidValue

HOST = "fed.example.org"


@pytest.fixture(scope="module")
def above() -> Credential:
    return authority()


@pytest.fixture(scope="module")
def served(above: Credential) -> Credential:
    return server(above, [HOST, "192.0.2.7", "2001:db8::7"], days=90)


def shaken(served: Credential, believed: Credential, host: str, folder: Path) -> str | None:
    """The version of TLS by which a client who believes an authority speaks to a server, in memory."""
    (folder / "server.pem").write_bytes(served.certificate)
    (folder / "server.key").write_bytes(served.key)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "server.pem", folder / "server.key")
    asking = ssl.create_default_context(cadata=believed.certificate.decode())
    # What newer versions of Python ask for by default.
    asking.verify_flags |= ssl.VERIFY_X509_STRICT
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(back, there, server_hostname=host)
    remote = serving.wrap_bio(there, back, server_side=True)
    for _ in range(4):
        for side in (client, remote):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client.version() if client.getpeercert() else None


@pytest.mark.parametrize("host", [HOST, "192.0.2.7", "2001:db8::7", "localhost", "127.0.0.1"])
def test_the_server_is_believed_under_every_name_that_it_was_given_and_on_its_own_machine(
    above: Credential, served: Credential, host: str, tmp_path: Path
) -> None:
    assert shaken(served, above, host, tmp_path) == "TLSv1.3"


def test_another_name_is_not_believed(above: Credential, served: Credential, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shaken(served, above, "other.example.org", tmp_path)


def test_another_authority_is_not_believed(served: Credential, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        shaken(served, authority(), HOST, tmp_path)


def test_a_server_cannot_vouch_for_another(above: Credential, served: Credential, tmp_path: Path) -> None:
    forged = server(served, [HOST])
    chained = Credential(forged.certificate + served.certificate, forged.key)
    with pytest.raises(ssl.SSLCertVerificationError, match="invalid CA"):
        shaken(chained, above, HOST, tmp_path)


def test_certificates_end_when_they_should_and_never_after_their_authority(tmp_path: Path) -> None:
    short = authority(days=30)
    for name, credential in (("ca", short), ("server", server(short, [HOST], days=365))):
        (tmp_path / name).write_bytes(credential.certificate)
    end = certificates.valid_until(tmp_path / "server")
    assert end == certificates.valid_until(tmp_path / "ca")
    assert abs(end - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=5)


def test_who_has_vouched_for_a_certificate_can_be_told(
    above: Credential, served: Credential, tmp_path: Path
) -> None:
    for name, content in (("a", above), ("b", authority()), ("s", served)):
        (tmp_path / name).write_bytes(content.certificate)
    assert certificates.is_issued_by(tmp_path / "s", tmp_path / "a")
    assert not certificates.is_issued_by(tmp_path / "s", tmp_path / "b")


def test_a_node_key_is_what_flower_asks_for(tmp_path: Path) -> None:
    made = node_key()
    (tmp_path / "node.key").write_bytes(made.private)
    assert made.private.startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    public = serialization.load_ssh_public_key(made.public)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert public.curve.name == "secp384r1"
    assert certificates.public_of(tmp_path / "node.key") == made.public
    assert node_key().private != made.private


def test_what_is_no_key_or_no_certificate_is_refused_by_name(tmp_path: Path, above: Credential) -> None:
    (tmp_path / "junk").write_bytes(b"junk")
    (tmp_path / "pem").write_bytes(above.key)
    with pytest.raises(InvalidFile, match="junk is not a certificate"):
        certificates.valid_until(tmp_path / "junk")
    for name in ("junk", "pem"):
        with pytest.raises(InvalidFile, match=f"{name} is not a key as OpenSSH writes it"):
            certificates.public_of(tmp_path / name)
    with pytest.raises(InvalidFile, match="cannot be read"):
        certificates.public_of(tmp_path / "absent")


@pytest.mark.parametrize("host", ["", "a b", "fed.example.org:8443", "-a", "a..b", "256.1.1.1", "https://a"])
def test_a_host_is_a_name_or_an_address(host: str) -> None:
    with pytest.raises(InvalidValue, match="host"):
        certificates.require_host(host)


def test_this_machine_is_known_by_its_addresses() -> None:
    assert all(map(certificates.is_this_machine, ("localhost", "127.0.0.1", "127.1.2.3", "::1")))
    assert not any(map(certificates.is_this_machine, (HOST, "192.0.2.7", "0.0.0.0")))
