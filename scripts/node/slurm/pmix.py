"""MPI: let Slurm's PMIx plugin find its library."""

from __future__ import annotations

from pathlib import Path

from system.host import link


def link_pmix(root: Path = Path("/usr/lib")) -> bool:
    """Give every installed libpmix.so.2 its plain name beside it; True when a link was made.

    Slurm's plugin opens pmix2/lib/libpmix.so, which Debian and Ubuntu ship with the headers only, so that
    `srun --mpi=pmix`, the default, would fail on every machine without a compiler.
    """
    made = [link(path.with_name("libpmix.so"), path.name) for path in sorted(root.glob("*/pmix2/lib/libpmix.so.2"))]
    return any(made)
