#!/bin/bash
# Epilog: removes the containers without a name that a job left on this node, because slurmstepd was killed. Containers
# with a name stay: they are the user's. As the user, since root follows no names in folders that users can write to.
set -euo pipefail

command -v enroot >/dev/null || exit 0
IFS=: read -r _ _ uid gid _ home _ < <(getent passwd "$SLURM_JOB_UID") || exit 0
# Not found, full or slow: that is no reason to drain the node.
# shellcheck disable=SC2016 # for the user's shell
timeout 300 setpriv --reuid "$uid" --regid "$gid" --clear-groups --no-new-privs \
    env -i HOME="$home" PATH=/usr/local/bin:/usr/bin:/bin bash -c '
        enroot list | while read -r name; do
            # pyxis calls them pyxis_JOB.STEP
            if [[ $name =~ ^pyxis_$1\.[0-9]+$ ]]; then
                enroot remove -f "$name" && echo "removed $name"
            fi
        done
    ' - "$SLURM_JOB_ID" || echo "containers of user $uid could not be listed or removed"
