"""Generates the cluster's secrets."""

import hashlib

import pulumi
import pulumi_random as random
import pulumi_tls as tls


class ClusterKeys(pulumi.ComponentResource):
    """SSH keys, the MUNGE key and the accounting database's password of one cluster.

    Replacing any of them cuts off running machines, so none has an input that could change.
    """

    admin: tls.PrivateKey
    """The operator's key: root on every machine."""
    cluster: tls.PrivateKey
    """The controller's key to the nodes, to read the logs of those that do not join."""
    munge: pulumi.Output[str]
    """The MUNGE key as text: 64 letters and digits, which are 381 random bits (munged takes 32 to 1,024 bytes)."""
    munge_fingerprint: pulumi.Output[str]
    """Identifies a MUNGE key, and is no secret: see scripts/node/system/munge.py."""
    database_password: pulumi.Output[str]
    tokens: pulumi.Output[str] | None = None
    """The key that signs tokens for slurmrestd (HS256, 381 random bits), in clusters that have that."""

    def __init__(self, name: str, *, tokens: bool = False, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:slurm:ClusterKeys", name, {}, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.admin = tls.PrivateKey(f"{name}-admin", algorithm="ED25519", opts=child)
        self.cluster = tls.PrivateKey(f"{name}-cluster", algorithm="ED25519", opts=child)
        # Not RandomBytes, RandomId or RandomString: their id is the value, and ids are in the state in plain text.
        # That of a password is the word "none" (terraform-provider-random, internal/provider/resource_password.go). It
        # keeps a bcrypt hash as well, which takes 72 bytes at most.
        self.munge = random.RandomPassword(f"{name}-munge", length=64, special=False, opts=child).result
        self.munge_fingerprint = pulumi.Output.unsecret(self.munge.apply(fingerprint))
        # Letters and digits: it goes into SQL and into slurmdbd.conf, where quoting differs.
        password = random.RandomPassword(f"{name}-database", length=32, special=False, opts=child)
        self.database_password = password.result
        if tokens:
            self.tokens = random.RandomPassword(f"{name}-tokens", length=64, special=False, opts=child).result
        self.register_outputs({"admin_public_key": self.admin.public_key_openssh})


def certificate(
    name: str, host: str, address: pulumi.Input[str], *, parent: pulumi.Resource
) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
    """Return a self-signed certificate for two years and its key, as PEM. A run in the last two months renews it."""
    child = pulumi.ResourceOptions(parent=parent)
    key = tls.PrivateKey(name, algorithm="ECDSA", ecdsa_curve="P256", opts=child)
    signed = tls.SelfSignedCert(
        name,
        private_key_pem=key.private_key_pem,
        subject=tls.SelfSignedCertSubjectArgs(common_name=host),
        dns_names=[host, "localhost"],
        ip_addresses=[address, "127.0.0.1"],
        allowed_uses=["digital_signature", "server_auth"],
        validity_period_hours=2 * 365 * 24,
        early_renewal_hours=60 * 24,
        opts=child,
    )
    return pulumi.Output.unsecret(signed.cert_pem), key.private_key_pem


def fingerprint(munge: str) -> str:
    """Return 48 bits of the hash of the MUNGE key's file, which ends with a line end."""
    return hashlib.sha256(f"{munge}\n".encode()).hexdigest()[:12]
