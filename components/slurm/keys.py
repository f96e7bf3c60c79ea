"""The cluster's secrets, made by the stack itself: nobody types one, and none is ever shown."""

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
    """The MUNGE key as text: 128 random bytes in base64 (munged takes any 32 to 1,024 bytes)."""
    database_password: pulumi.Output[str]

    def __init__(self, name: str, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:slurm:ClusterKeys", name, {}, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.admin = tls.PrivateKey(f"{name}-admin", algorithm="ED25519", opts=child)
        self.cluster = tls.PrivateKey(f"{name}-cluster", algorithm="ED25519", opts=child)
        self.munge = random.RandomBytes(f"{name}-munge", length=128, opts=child).base64
        # Letters and digits: it goes into SQL and into slurmdbd.conf, where quoting differs.
        password = random.RandomPassword(f"{name}-database", length=32, special=False, opts=child)
        self.database_password = password.result
        self.register_outputs({"admin_public_key": self.admin.public_key_openssh})
