# shellcheck shell=bash
# A Python of your own, with the packages of your own. Once, on the login machine:
#     python3 -m venv ~/venv && ~/venv/bin/pip install torch numpy
# and then: PYTHON=~/venv/bin/python sbatch ...
python=${PYTHON:-python3}
program=${PROGRAM:-/opt/apps/hpc/examples/train.py}
# Looked for, not imported: that takes long.
"$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' || {
    echo "$python has no PyTorch. The first lines of this script say how to have one of your own." >&2
    exit 1
}
