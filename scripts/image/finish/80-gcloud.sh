#!/bin/bash
# gcloud and gsutil as packages. As snaps they fail for users whose home is not below a local /home, which it is not here.
# After all others: the commands move.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

google_repository gcloud cloud-sdk
packages google-cloud-cli
if command -v snap >/dev/null; then
    for name in google-cloud-cli lxd; do
        ! snap list "$name" >/dev/null 2>&1 || snap remove --purge "$name"
    done
fi
