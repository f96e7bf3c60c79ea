"""pulumi-tls: private keys, and certificates that are signed with their own key."""

import base64
import hashlib
import ipaddress
from datetime import datetime, timedelta, timezone
from typing import Any

from engine.core.diff import Diff, differences
from engine.providers.base import Context, InputCheckError, Provider
from engine.values import Props

_CURVES = {"P224": "SECP224R1", "P256": "SECP256R1", "P384": "SECP384R1", "P521": "SECP521R1"}
"""Pulumi's names of curves, and cryptography's."""
_KEY_USES = (
    *"digital_signature content_commitment key_encipherment data_encipherment key_agreement".split(),
    *"key_cert_sign crl_sign encipher_only decipher_only".split(),
)


class PrivateKey(Provider):
    """tls:PrivateKey: RSA, ECDSA or ED25519, kept in the state. A changed input replaces it."""

    def check(self, ctx: Context, olds: Props, news: Props) -> Props:  # noqa: ARG002
        for name, allowed in (("algorithm", {"RSA", "ECDSA", "ED25519"}), ("ecdsaCurve", {*_CURVES})):
            if (given := news.get(name, "P224" if name == "ecdsaCurve" else None)) not in allowed:
                raise InputCheckError(f"{name}: {given!r} is none of {', '.join(sorted(allowed))}")
        return news

    def diff(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Diff:  # noqa: ARG002
        return Diff(replaces=tuple(change.path for change in differences(olds, news)))

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

    def update(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Props:  # noqa: ARG002
        return {**outputs, **news}

    def abandon(self, ctx: Context, inputs: Props, held: frozenset[str]) -> None:
        """Do nothing: the resource is in the state only."""


class SelfSignedCert(Provider):
    """tls:SelfSignedCert of a server, with a common name alone as its subject, kept in the state. A changed input
    replaces it, and so does time: from `earlyRenewalHours` before its end on."""

    def check(self, ctx: Context, olds: Props, news: Props) -> Props:  # noqa: ARG002
        inputs = "allowedUses dnsNames earlyRenewalHours ipAddresses privateKeyPem subject validityPeriodHours".split()
        for name, given, known in (
            ("inputs", {key for key in news if not key.startswith("__")}, inputs),
            ("allowedUses", {*news["allowedUses"]}, ["digital_signature", "server_auth"]),
            ("subject", {*news["subject"]}, ["commonName"]),
        ):
            if more := sorted(given - {*known}):
                raise InputCheckError(f"{name}: {more[0]!r} is none of {', '.join(known)}")
        return news

    def diff(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Diff:  # noqa: ARG002
        end = datetime.fromisoformat(outputs["validityEndTime"].replace("Z", "+00:00"))
        if datetime.now(timezone.utc) >= end - timedelta(hours=news.get("earlyRenewalHours", 0)):
            return Diff(changes=True, replaces=("readyForRenewal",))
        changed = {change.path.split(".")[0].split("[")[0] for change in differences(olds, news)}
        return Diff(replaces=tuple(sorted(changed - {"earlyRenewalHours"})))

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
            *(x509.DNSName(one) for one in news.get("dnsNames") or ()),
            *(x509.IPAddress(ipaddress.ip_address(one)) for one in news.get("ipAddresses") or ()),
        ]
        use = dict.fromkeys(_KEY_USES, False) | {"digital_signature": "digital_signature" in news["allowedUses"]}
        made = x509.CertificateBuilder(name, name, key.public_key(), number, start, end)
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        made = made.add_extension(x509.KeyUsage(**use), critical=True)
        if "server_auth" in news["allowedUses"]:
            made = made.add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        if names:
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = made.sign(key, None if isinstance(key, Ed25519PrivateKey) else SHA256())
        return str(number), {
            **news,
            "certPem": signed.public_bytes(Encoding.PEM).decode(),
            "readyForRenewal": False,
            "validityStartTime": f"{start:%FT%TZ}",
            "validityEndTime": f"{end:%FT%TZ}",
        }

    def update(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Props:  # noqa: ARG002
        return {**outputs, **news}

    def abandon(self, ctx: Context, inputs: Props, held: frozenset[str]) -> None:
        """Do nothing: the resource is in the state only."""
