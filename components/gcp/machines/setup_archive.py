"""The set-up as one object that machines fetch from the stack's bucket."""

import hashlib
from functools import cache

from components.slurm import setup


@cache
def archive() -> tuple[bytes, str]:
    """Content and SHA-256: {name: [lines]} as JSON.

    Not compressed: the bytes of a gzip differ between versions of zlib, and with them every machine's metadata.
    """
    content = setup.packed().encode()
    return content, hashlib.sha256(content).hexdigest()
