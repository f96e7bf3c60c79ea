"""pulumi-tls: private keys, and certificates that are signed with their own key."""

import base64
import hashlib
import ipaddress
from datetime import datetime, timedelta, timezone
from typing import Any

from engine.core.diff import Diff
from engine.providers.base import Context, InputCheckError, Provider, StateOnly, changed_inputs
from engine.values import Props

_CURVES = {"P224": "SECP224R1", "P256": "SECP256R1", "P384": "SECP384R1", "P521": "SECP521R1"}
"""Pulumi's names of curves, and cryptography's."""
_KEY_USES = (
    *"digital_signature content_commitment key_encipherment data_encipherment key_agreement".split(),
    *"key_cert_sign crl_sign encipher_only decipher_only".split(),
)


class PrivateKey(StateOnly):
    """tls:PrivateKey: RSA, ECDSA or ED25519, kept in the state. A changed input replaces it."""

    def check(self, ctx: Context, olds: Props, news: Props) -> Props:  # noqa: ARG002
        for name, allowed in (("algorithm", {"RSA", "ECDSA", "ED25519"}), ("ecdsaCurve", {*_CURVES})):
            if (value := news.get(name, "P224" if name == "ecdsaCurve" else None)) not in allowed:
                raise InputCheckError(f"{name}: {value!r} is none of {', '.join(sorted(allowed))}")
        return news

    def create(self, ctx: Context, news: Props) -> tuple[str, Props]:  # noqa: ARG002
        # Slow to import, and a preview makes no key.
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
            Encoding,
            NoEncryption,
            PrivateFormat,
            PublicFormat,
        )  # fmt: skip

        bits, curve = int(news.get("rsaBits", 2048)), news.get("ecdsaCurve", "P224")
        if news["algorithm"] == "ED25519":
            key = ed25519.Ed25519PrivateKey.generate()
        elif news["algorithm"] == "ECDSA":
            key = ec.generate_private_key(getattr(ec, _CURVES[curve])())
        else:
            key = rsa.generate_private_key(65537, bits)
        public = key.public_key()
        spki = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        outputs: Props = {
            **news, "rsaBits": bits, "ecdsaCurve": curve, "privateKeyPemPkcs8": pkcs8,
            "publicKeyPem": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode(),
            "privateKeyPem": pkcs8, "privateKeyOpenssh": "", "publicKeyOpenssh": "",
            "publicKeyFingerprintMd5": "", "publicKeyFingerprintSha256": "", "__meta": '{"schema_version":"1"}',
        }  # fmt: skip
        if news["algorithm"] != "ED25519":
            pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
            outputs["privateKeyPem"] = pem.decode()
        # OpenSSH has no P-224.
        if news["algorithm"] != "ECDSA" or curve != "P224":
            line = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
            blob = base64.b64decode(line.split()[1])
            sha256 = base64.b64encode(hashlib.sha256(blob).digest())
            md5 = hashlib.md5(blob, usedforsecurity=False).hexdigest()
            outputs |= {
                "privateKeyOpenssh": key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode(),
                "publicKeyOpenssh": line + "\n",
                "publicKeyFingerprintMd5": ":".join(md5[i : i + 2] for i in range(0, 32, 2)),
                "publicKeyFingerprintSha256": f"SHA256:{sha256.decode().rstrip('=')}",
            }
        return hashlib.sha1(spki, usedforsecurity=False).hexdigest(), outputs


class SelfSignedCert(StateOnly):
    """tls:SelfSignedCert of a server, whose subject has only a common name, kept in the state. A changed input replaces
    it, and so does a run from `earlyRenewalHours` before its end on."""

    def check(self, ctx: Context, olds: Props, news: Props) -> Props:  # noqa: ARG002
        inputs = "allowedUses dnsNames earlyRenewalHours ipAddresses privateKeyPem subject validityPeriodHours".split()
        for name, words, allowed in (
            ("inputs", {key for key in news if not key.startswith("__")}, inputs),
            ("allowedUses", {*news["allowedUses"]}, ["digital_signature", "server_auth"]),
            ("subject", {*news["subject"]}, ["commonName"]),
        ):
            if others := sorted(words - {*allowed}):
                raise InputCheckError(f"{name}: {others[0]!r} is none of {', '.join(allowed)}")
        return news

    def diff(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Diff:  # noqa: ARG002
        end = datetime.fromisoformat(outputs["validityEndTime"].replace("Z", "+00:00"))
        if datetime.now(timezone.utc) >= end - timedelta(hours=news.get("earlyRenewalHours", 0)):
            return Diff(changes=True, replaces=("readyForRenewal",))
        return Diff(replaces=tuple(name for name in changed_inputs(olds, news) if name != "earlyRenewalHours"))

    def create(self, ctx: Context, news: Props) -> tuple[str, Props]:  # noqa: ARG002
        from cryptography import x509  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key  # noqa: PLC0415

        key: Any = load_pem_private_key(news["privateKeyPem"].encode(), None)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, news["subject"]["commonName"])])
        start, number = datetime.now(timezone.utc).replace(microsecond=0), x509.random_serial_number()
        end = start + timedelta(hours=news["validityPeriodHours"])
        names = [
            *(x509.DNSName(dns_name) for dns_name in news.get("dnsNames") or ()),
            *(x509.IPAddress(ipaddress.ip_address(address)) for address in news.get("ipAddresses") or ()),
        ]
        use = dict.fromkeys(_KEY_USES, False) | {"digital_signature": "digital_signature" in news["allowedUses"]}
        builder = x509.CertificateBuilder(name, name, key.public_key(), number, start, end)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.KeyUsage(**use), critical=True)
        if "server_auth" in news["allowedUses"]:
            server = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH])
            builder = builder.add_extension(server, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(key, None if isinstance(key, Ed25519PrivateKey) else SHA256())
        return str(number), {
            **news,
            "certPem": certificate.public_bytes(Encoding.PEM).decode(),
            "readyForRenewal": False,
            "validityStartTime": f"{start:%FT%TZ}",
            "validityEndTime": f"{end:%FT%TZ}",
        }


PROVIDERS: dict[str, type[Provider]] = {
    "tls:index/privateKey:PrivateKey": PrivateKey,
    "tls:index/selfSignedCert:SelfSignedCert": SelfSignedCert,
}
"""Providers by resource type."""
