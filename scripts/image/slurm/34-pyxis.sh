#!/bin/bash
# pyxis: `srun --container-image`, by enroot.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs PYXIS_URL PYXIS_VERSION PYXIS_COMMIT SLURM_VERSION

# A plugin is for the Slurm that it was built with, and refused by any other.
mark=/usr/local/lib/slurm/spank_pyxis.version
if [[ ! -f $mark || $(<"$mark") != "$PYXIS_VERSION for $SLURM_VERSION" ]]; then
    packages git make gcc
    checkout "$PYXIS_URL" "$PYXIS_COMMIT" "$BUILD/pyxis"
    make -C "$BUILD/pyxis" -j "$(nproc)" prefix=/usr/local install
    put "$mark" <<<"$PYXIS_VERSION for $SLURM_VERSION"
fi
# The controller hands this file to every node, as it does slurm.conf.
put /etc/slurm/plugstack.conf <<<'required /usr/local/lib/slurm/spank_pyxis.so'
