#!/bin/bash
# What jobs are started and fed with: Open MPI, which finds its tasks through the same PMIx as Slurm, and rclone.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

packages openmpi-bin libopenmpi-dev python3-mpi4py rclone
