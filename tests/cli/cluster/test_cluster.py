"""A cluster from a stack's outputs: names of machines, users, capabilities, and drivers of any kind."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from cli.access import remote
