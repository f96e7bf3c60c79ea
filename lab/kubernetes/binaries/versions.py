"""Versions of programs, as they print them."""

import functools
import os
import re
import subprocess

Version = tuple[int, int]


@functools.cache
def printed(path: str, asks: tuple[str, ...]) -> Version:
    """Major and minor version that a program prints first, or (0, 0) if it prints none."""
    try:
        done = subprocess.run(
            [path, *asks], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=30,
            env=os.environ | {"GOTOOLCHAIN": "local"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    match = re.search(r"(?<![0-9.])(\d+)\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)
