#!/bin/bash
# What this machine's software is, and of which day: `./hpc status` reports when that is long ago.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs BAKE

# Once: steps that have changed and run again bring no newer packages.
if [[ ! -e /etc/hpc/image.json ]]; then
    put /etc/hpc/image.json <<<"{\"recipe\": \"${RECIPE:-}\", \"snapshot\": \"${SNAPSHOT:-}\", \"kernel\": \"${KERNEL_DAY:-}\", \"made\": $(date +%s), \"baked\": $BAKE}"
fi
