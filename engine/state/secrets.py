"""Secrets in values: encrypted one by one in the state, opened for those who may see them."""

import json
from collections.abc import Callable

from engine.values import SECRET, SIG, Value, is_secret, plain


def seal(value: Value, encrypt: Callable[[str], str]) -> Value:
    """Encrypt all secrets in a value. One inside another is only marked, as the CLI does: the outer one hides it."""
    if is_secret(value):
        text = json.dumps(seal(value["value"], str), separators=(",", ":"), ensure_ascii=False)
        return {SIG: SECRET, "ciphertext": encrypt(text)}
    if isinstance(value, dict):
        return {k: seal(v, encrypt) for k, v in value.items()}
    return [seal(v, encrypt) for v in value] if isinstance(value, list) else value


def unseal(value: Value, decrypt: Callable[[str], str]) -> Value:
    """Undo `seal`. Also reads secrets that an export shows in plain text."""
    if is_secret(value):
        text = value["plaintext"] if "plaintext" in value else decrypt(value["ciphertext"])
        return {SIG: SECRET, "value": unseal(json.loads(text), str)}
    if isinstance(value, dict):
        return {k: unseal(v, decrypt) for k, v in value.items()}
    return [unseal(v, decrypt) for v in value] if isinstance(value, list) else value


def reveal(value: Value, decrypt: Callable[[str], str] | None) -> Value:
    """Sealed values for a person's eyes: secrets opened with `decrypt`, or shown as "[secret]" without."""
    if is_secret(value):
        return plain(unseal(value, decrypt)) if decrypt else "[secret]"
    if isinstance(value, dict):
        return {k: reveal(v, decrypt) for k, v in value.items()}
    return [reveal(v, decrypt) for v in value] if isinstance(value, list) else value
