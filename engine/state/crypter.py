"""Encryption of secrets with a passphrase, in the Pulumi CLI's format (pkg/secrets/passphrase/manager.go and
sdk/go/common/resource/config/crypt.go).

A secret is `v1:NONCE:CIPHERTEXT` (base64; AES-256-GCM); the key is PBKDF2-HMAC-SHA256 of the passphrase with a salt
and 1,000,000 rounds. The salt is kept as `v1:SALT:SECRET`, where SECRET is the encrypted text `pulumi`, which detects
a wrong passphrase at once.
"""

import functools
import hashlib
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread

from engine.errors import PassphraseError
from engine.values import SECRET, SIG, Value, plain, with_secrets

Passphrase = Callable[[], str]
ROUNDS: int = 1_000_000
_PROBE = "pulumi"


class _Key(Thread):
    """A thread that derives a key, which takes a third of a second of a core."""

    def __init__(self, passphrase: str, salt: bytes, rounds: int) -> None:
        super().__init__(daemon=True)
        self._arguments = passphrase.encode(), salt, rounds
        self._key = b""
        self.start()

    def run(self) -> None:
        self._key = hashlib.pbkdf2_hmac("sha256", *self._arguments, 32)

    def wait(self) -> bytes:
        """Wait for the key and return it."""
        self.join()
        return self._key


derive = functools.lru_cache(maxsize=4)(_Key)
"""Starts the thread; a process derives each key once."""


def from_environment() -> str:
    """Return the passphrase from PULUMI_CONFIG_PASSPHRASE or the file named by PULUMI_CONFIG_PASSPHRASE_FILE.
    Raises PassphraseError if neither is set."""
    if "PULUMI_CONFIG_PASSPHRASE" in os.environ:
        return os.environ["PULUMI_CONFIG_PASSPHRASE"]
    file = os.environ.get("PULUMI_CONFIG_PASSPHRASE_FILE")
    if not file:
        message = "no passphrase for the stack's secrets: set PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE"
        raise PassphraseError(message)
    return Path(file).read_text(encoding="utf-8").rstrip("\r\n")


class Crypter:
    """Encrypts and decrypts with one salt. The passphrase is asked for, and the key derived, when first needed."""

    def __init__(self, passphrase: Passphrase, salt: str = "") -> None:
        """`salt` is a stack's `encryptionsalt`; without it, a new salt is made when first needed."""
        self._passphrase = passphrase
        self._salt = salt
        self._new_salt = os.urandom(8)
        self._key: bytes | None = None
        self._lock = Lock()
        self._ciphertexts: dict[str, str] = {}

    @property
    def salt(self) -> str:
        """The salt, in the form of the state and the stack file."""
        if not self._salt:
            self.unlock()
        return self._salt

    def encrypt(self, text: str) -> str:
        """Encrypt a text. Within a run, the same text has the same ciphertext, so that state files differ only where
        the state does."""
        if text not in self._ciphertexts:
            self._ciphertexts[text] = self._seal(self.unlock(), text)
        return self._ciphertexts[text]

    def decrypt(self, ciphertext: str) -> str:
        """Decrypt a text. Raises PassphraseError."""
        text = self._open(self.unlock(), ciphertext)
        self._ciphertexts.setdefault(text, ciphertext)
        return text

    def begin(self) -> _Key:
        """Begin to derive the key, which `unlock` needs, and return at once."""
        raw = b64decode(self._salt.split(":")[1]) if self._salt else self._new_salt
        return derive(self._passphrase(), raw, ROUNDS)

    def unlock(self) -> bytes:
        """Return the key, and make a salt if there is none. Raises PassphraseError if the passphrase does not fit."""
        with self._lock:
            if self._key is None:
                key = self.begin().wait()
                if self._salt:
                    self._open(key, self._salt.split(":", 2)[2])
                else:
                    self._salt = f"v1:{b64encode(self._new_salt).decode()}:{self._seal(key, _PROBE)}"
                self._key = key
            return self._key

    @staticmethod
    def _seal(key: bytes, text: str) -> str:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - only where there are secrets

        nonce = os.urandom(12)
        return f"v1:{b64encode(nonce).decode()}:{b64encode(AESGCM(key).encrypt(nonce, text.encode(), None)).decode()}"

    @staticmethod
    def _open(key: bytes, ciphertext: str) -> str:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        try:
            _, nonce, data = ciphertext.split(":")
            return AESGCM(key).decrypt(b64decode(nonce), b64decode(data), None).decode()
        except (InvalidTag, ValueError):
            message = "the passphrase does not fit this stack's secrets (PULUMI_CONFIG_PASSPHRASE or ..._FILE)"
            raise PassphraseError(message) from None


def seal(value: Value, encrypt: Callable[[str], str]) -> Value:
    """Encrypt all secrets in a value. A secret within a secret is only marked, as by the CLI."""

    def seal_one(secret: Value) -> Value:
        # Sorted, as by the CLI: the same value in another order would have another ciphertext.
        text = json.dumps(seal(secret["value"], str), separators=(",", ":"), ensure_ascii=False, sort_keys=True)
        return {SIG: SECRET, "ciphertext": encrypt(text)}

    return with_secrets(value, seal_one)


def unseal(value: Value, decrypt: Callable[[str], str]) -> Value:
    """Decrypt all secrets in a value; the inverse of `seal`. Also reads secrets that an export has in plain text."""

    def unseal_one(secret: Value) -> Value:
        text = secret["plaintext"] if "plaintext" in secret else decrypt(secret["ciphertext"])
        return {SIG: SECRET, "value": unseal(json.loads(text), str)}

    return with_secrets(value, unseal_one)


def reveal(value: Value, decrypt: Callable[[str], str] | None) -> Value:
    """Return sealed values as they are shown: with secrets decrypted, or "[secret]" without `decrypt`."""
    return with_secrets(value, lambda secret: plain(unseal(secret, decrypt)) if decrypt else "[secret]")
