"""The API server's own certificate authority, what it signs, and the key of service account tokens."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from components.local.host.locks import write_atomically

_YEARS = dt.timedelta(days=3650)
_SKEW = dt.timedelta(hours=1)
"""Certificates begin before now, for machines whose clocks differ."""


def authority(folder: Path) -> Path:
    """The certificate `ca.crt` in the folder, created with its key if it is not there."""
    certificate, key = folder / "ca.crt", folder / "ca.key"
    if not certificate.exists():
        made = _key(key)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        builder = _builder(name, name, made).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        _write(certificate, builder.add_extension(usage, critical=True).sign(made, hashes.SHA256()))
    return certificate


def issue(folder: Path, name: str, hosts: Sequence[str]) -> tuple[Path, Path]:
    """A new certificate `NAME.crt` and its key, signed by the folder's authority, for host names and addresses; it
    serves for a server and for a client."""
    issuer = x509.load_pem_x509_certificate(authority(folder).read_bytes())
    issuer_key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{folder / 'ca.key'}: not the key that was written")
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    made = _key(key)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = _builder(subject, issuer.subject, made).add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    names = x509.SubjectAlternativeName([_general(host) for host in hosts])
    _write(certificate, builder.add_extension(names, critical=False).sign(issuer_key, hashes.SHA256()))
    return certificate, key


def signing_key(file: Path) -> Path:
    """The private key that signs service account tokens, created if it is not there."""
    if not file.exists():
        _key(file)
    return file


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.timezone.utc)
    return x509.CertificateBuilder(
        issuer, subject, key.public_key(), x509.random_serial_number(), now - _SKEW, now + _YEARS
    )


def _key(file: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    write_atomically(file, text.decode(), mode=0o600)
    return key


def _write(file: Path, certificate: x509.Certificate) -> None:
    write_atomically(file, certificate.public_bytes(serialization.Encoding.PEM).decode())


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
