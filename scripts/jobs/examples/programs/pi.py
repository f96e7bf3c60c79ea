"""Computes pi with MPI: each process adds up its part of a sum, and one collective adds the parts.

srun --mpi=pmix --ntasks=8 python3 pi.py
"""

from __future__ import annotations

import math
import sys

from mpi4py import MPI


def main() -> None:
    """Print pi, its error, and where the processes ran."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    world = MPI.COMM_WORLD
    width = 1 / steps
    part = sum(4 / (1 + ((i + 0.5) * width) ** 2) for i in range(world.rank, steps, world.size)) * width
    pi = world.allreduce(part)
    nodes = world.gather(MPI.Get_processor_name())
    if nodes is not None:
        print(f"{world.size} processes on {' '.join(sorted(set(nodes)))}")
        print(f"pi is {pi:.12f}, wrong by {abs(pi - math.pi):.1e}")
    if abs(pi - math.pi) > 1e-6:
        world.Abort(1)


if __name__ == "__main__":
    main()
