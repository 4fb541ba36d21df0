"""TLS certificates of the coordinator, and authentication keys of nodes.

An authority of the federation's own vouches for the coordinator's certificate; nodes know the authority's
certificate and trust no other. No public authority is involved.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tacit.errors import InvalidFile, require, require_count
from tacit.runtime import files

# A rehearsal, and the coordinator's own programs, go by these.
HERE = ("localhost", "127.0.0.1")
# Sites keep the authority's certificate: it outlives the coordinator's, which is renewed under it.
AUTHORITY_DAYS = 3650
# Clocks differ.
EARLIER = timedelta(hours=1)
# Longer files are neither keys nor certificates, and are not read.
LONGEST = 2**20


@dataclass(frozen=True)
class Credential:
    """A certificate and its secret key, as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class NodeKey:
    """The key by which a node is known to the superlink, as OpenSSH writes it."""

    private: bytes
    public: bytes


def authority(name: str = "Tacit", *, days: int = AUTHORITY_DAYS) -> Credential:
    """Create an authority, which vouches for the coordinator of one federation alone."""
    require_count("days", days)
    key, subject = ec.generate_private_key(ec.SECP384R1()), _x509_name(f"{name} authority")
    builder = _certificate_builder(subject, subject, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_others=True), critical=True)
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    )
    return _to_pem(builder.sign(key, hashes.SHA384()), key)


def server(by: Credential, hosts: Sequence[str], *, days: int = 365) -> Credential:
    """Issue a certificate for a server under these names or addresses, and on its own machine.

    Args:
        by: The issuing authority.
        hosts: Names and addresses, without ports.
        days: The days of validity, never beyond the authority's.
    """
    require_count("days", days)
    above, signing = _certificate(by.certificate, "authority"), _private(by.key)
    key, names = ec.generate_private_key(ec.SECP384R1()), list(dict.fromkeys((*hosts, *HERE)))
    builder = _certificate_builder(
        _x509_name(names[0]), above.subject, key.public_key(), days, above.not_valid_after_utc
    )
    builder = builder.add_extension(x509.SubjectAlternativeName([_host(name) for name in names]), False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_others=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    )
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    return _to_pem(builder.add_extension(known, critical=False).sign(signing, hashes.SHA384()), key)


def node_key() -> NodeKey:
    """A new key for a node: ECDSA on P-384, which Flower asks for."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return NodeKey(private, public + b"\n")


def valid_until(file: Path) -> datetime:
    """Return the expiry of a certificate."""
    return _certificate(_read(file), str(file)).not_valid_after_utc


def is_issued_by(file: Path, by: Path) -> bool:
    """Return True if one certificate was issued by the authority of another."""
    found, above = _certificate(_read(file), str(file)), _certificate(_read(by), str(by))
    try:
        found.verify_directly_issued_by(above)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def public_of(node: Path) -> bytes:
    """The public half of a node's key.

    Raises:
        InvalidFile: It cannot be read, or is no key that Flower takes.
    """
    try:
        key = serialization.load_ssh_private_key(_read(node), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidFile(f"{node} is not a key as OpenSSH writes it: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidFile(f"{node} is not a key on a NIST curve, which Flower asks for")
    public = key.public_key()
    return public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH) + b"\n"


def require_host(host: str) -> None:
    """Refuse what is neither an address nor a name that a certificate can hold."""
    name = re.fullmatch(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*", host) is not None
    # Digits and dots alone are an address with a slip in it.
    named = name and len(host) <= 253 and not re.fullmatch(r"[0-9.]+", host)
    require(named or _address(host) is not None, "host", host, "a name or an address, without a port")


def is_this_machine(host: str) -> bool:
    """Return True for `localhost` and loopback addresses."""
    found = _address(host)
    return host == "localhost" or (found is not None and found.is_loopback)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _host(host: str) -> x509.GeneralName:
    require_host(host)
    found = _address(host)
    return x509.DNSName(host) if found is None else x509.IPAddress(found)


def _x509_name(name: str) -> x509.Name:
    # A common name holds 64 characters; names that count are in the extension.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _certificate_builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    days: int,
    latest: datetime | None = None,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC).replace(microsecond=0)
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(end if latest is None else min(end, latest))
    )


def _usage(*, signs_others: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_others,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_others,
        crl_sign=signs_others,
        encipher_only=False,
        decipher_only=False,
    )


def _to_pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Credential:
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Credential(certificate.public_bytes(serialization.Encoding.PEM), secret)


def _read(file: Path) -> bytes:
    try:
        return files.read_bytes(file, LONGEST)
    except OSError as error:
        raise InvalidFile(f"{file} cannot be read: {files.explain(error)}") from error


def _certificate(content: bytes, name: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError as error:
        raise InvalidFile(f"{name} is not a certificate") from error


def _private(content: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidFile("the authority's key is not a key") from error
    require(isinstance(key, ec.EllipticCurvePrivateKey), "authority", type(key).__name__, "an EC key")
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key
