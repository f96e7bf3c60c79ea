"""pulumi-random: random values, created once and kept in the state. A changed input replaces them."""

import base64
import contextlib
import ctypes
import secrets
import string
import threading
import uuid
from collections.abc import Callable

from engine.providers.base import Context, InputCheckError, StateOnly
from engine.values import Props

# Kinds of characters: the input that allows them, the input with their least number, the characters.
_KINDS = (
    ("upper", "minUpper", string.ascii_uppercase),
    ("lower", "minLower", string.ascii_lowercase),
    ("numeric", "minNumeric", string.digits),
    ("special", "minSpecial", "!@#$%&*()-_=+[]{}<>:?"),
)
_ADJECTIVES = (
    "able bold calm dear eager fair glad happy keen live merry neat proud quick rapid sharp top vital wise".split()
)
_ANIMALS = (
    "ant bear cat dog eel fox goat hare ibex jay kite lynx mole newt owl pig quail ram seal tern wolf yak".split()
)


_CRYPT = threading.Lock()  # crypt(3) has one buffer for the results of all threads


class Random(StateOnly):
    """Creates the resources of pulumi-random, but UUIDs of given versions."""

    def check(self, ctx: Context, olds: Props, news: Props) -> Props:  # noqa: ARG002
        if ctx.type not in _MAKERS:
            raise InputCheckError(f"{ctx.type}: not among those that the embedded engine draws ({', '.join(_MAKERS)})")
        return news

    def create(self, ctx: Context, news: Props) -> tuple[str, Props]:
        id_, outputs = _MAKERS[ctx.type](news)
        return id_, {**news, **outputs}


def _text(news: Props) -> str:
    length = int(news["length"])
    pools, chosen = "", ""
    for allow, least, characters in _KINDS:
        pool = news.get("overrideSpecial") or characters if allow == "special" else characters
        if news.get(allow, news.get("number", True) if allow == "numeric" else True):
            pools += pool
        chosen += "".join(secrets.choice(pool) for _ in range(int(news.get(least, 0))))
    if len(chosen) > length or not pools:
        raise InputCheckError(f"length: {length} is too short for the characters demanded, or none is allowed")
    chosen += "".join(secrets.choice(pools) for _ in range(length - len(chosen)))
    return "".join(secrets.SystemRandom().sample(chosen, length))


def _string(news: Props) -> tuple[str, Props]:
    text = _text(news)
    flags: Props = {allow: news.get(allow, True) for allow, _, _ in _KINDS} | {
        least: news.get(least, 0) for _, least, _ in _KINDS
    }
    meta = '{"schema_version":"2"}'
    return text, {**flags, "number": flags["numeric"], "result": text, "__meta": meta}


def _password(news: Props) -> tuple[str, Props]:
    outputs = _string(news)[1]
    hashed = _bcrypt(outputs["result"])
    return "none", {**outputs, **({"bcryptHash": hashed} if hashed else {}), "__meta": '{"schema_version":"3"}'}


def _bcrypt(text: str) -> str | None:
    """Return the bcrypt hash that web servers accept; None where the C library's crypt has no bcrypt."""
    salt = "".join(secrets.choice(f"./{string.ascii_letters}{string.digits}") for _ in range(21)) + "e"
    with contextlib.suppress(OSError), _CRYPT:
        crypt = ctypes.CDLL("libcrypt.so.1").crypt
        crypt.restype = ctypes.c_char_p
        hashed = crypt(text.encode()[:72], f"$2b$10${salt}".encode())
        return hashed.decode() if hashed and hashed.startswith(b"$2b$") else None
    return None


def _bytes(news: Props) -> tuple[str, Props]:
    raw = secrets.token_bytes(int(news["length"]))
    return base64.b64encode(raw).decode(), {"base64": base64.b64encode(raw).decode(), "hex": raw.hex()}


def _id(news: Props) -> tuple[str, Props]:
    raw, prefix = secrets.token_bytes(int(news["byteLength"])), news.get("prefix", "")
    url = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    std, number = base64.b64encode(raw).decode(), str(int.from_bytes(raw, "big"))
    return url, {"b64Url": prefix + url, "b64Std": prefix + std, "hex": prefix + raw.hex(), "dec": prefix + number}


def _integer(news: Props) -> tuple[str, Props]:
    low, high = int(news["min"]), int(news["max"])
    result = low + secrets.randbelow(high - low + 1)
    return str(result), {"result": result}


def _pet(news: Props) -> tuple[str, Props]:
    length, separator = int(news.get("length", 2)), news.get("separator", "-")
    words = [secrets.choice(_ADJECTIVES) for _ in range(length - 1)] + [secrets.choice(_ANIMALS)]
    name = separator.join([*([news["prefix"]] if news.get("prefix") else []), *words])
    return name, {"length": length, "separator": separator}


def _shuffle(news: Props) -> tuple[str, Props]:
    inputs = list(news["inputs"])
    count = int(news.get("resultCount", len(inputs)))
    results: list[str] = []
    while inputs and len(results) < count:
        results += secrets.SystemRandom().sample(inputs, len(inputs))
    return "-", {"results": results[:count]}


def _uuid(_news: Props) -> tuple[str, Props]:
    text = str(uuid.uuid4())
    return text, {"result": text}


_MAKERS: dict[str, Callable[[Props], tuple[str, Props]]] = {
    f"random:index/random{maker.__name__[1:].capitalize()}:Random{maker.__name__[1:].capitalize()}": maker
    for maker in (_bytes, _id, _integer, _password, _pet, _shuffle, _string, _uuid)
}
"""Functions that return the id and outputs of a new resource, by type."""
