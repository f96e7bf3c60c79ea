"""A machine's SSH host key."""


def generate() -> tuple[str, str]:
    """A new ed25519 key pair: the text of OpenSSH's key file, and "ssh-ed25519 AAAA...".

    Made in this process, not by ssh-keygen: a child outlives a run that is killed, and would still write its file
    into the folder of the next run.
    """
    # Slow to import, and a preview makes no key.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )  # fmt: skip

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    return private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
