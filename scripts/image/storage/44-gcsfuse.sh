#!/bin/bash
# GCS FUSE, for buckets as folders.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs GCSFUSE

google_repository gcsfuse "gcsfuse-$(codename)"
packages fuse3 "gcsfuse=$GCSFUSE"
hold gcsfuse
# Other users than the one who mounts may look in.
put /etc/fuse.conf <<<user_allow_other
