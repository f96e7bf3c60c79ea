#!/bin/bash
# Epilog: removes what containers of a job left on this node because their programs were killed: enroot's containers
# without a name, and images that apptainer had unpacked into /tmp for want of squashfuse. Containers with a name stay:
# they are the user's. As the user, since root follows no names in folders that users can write to.
set -euo pipefail

cd /
IFS=: read -r _ _ uid gid _ home _ < <(getent passwd "$SLURM_JOB_UID") || exit 0
# What can't be removed, or is slow, is said in the log: that is no reason to drain the node.
# shellcheck disable=SC2016 # for the user's shell
timeout 300 setpriv --reuid "$uid" --regid "$gid" --clear-groups --no-new-privs \
    env -i HOME="$home" PATH=/usr/local/bin:/usr/bin:/bin bash -c '
        if command -v enroot >/dev/null; then
            enroot list | while read -r name; do
                # pyxis calls them pyxis_JOB.STEP
                if [[ $name =~ ^pyxis_$1\.[0-9]+$ ]]; then
                    enroot remove -f "$name" && echo "removed $name"
                fi
            done
        fi
        # Another job of the user here may use one.
        if ! pgrep -U "$UID" >/dev/null -f "^Apptainer runtime parent"; then
            find /tmp -maxdepth 1 -type d -user "$UID" -name "rootfs-*" -print0 | while IFS= read -r -d "" folder; do
                chmod -R u+rwX "$folder"
                rm -rf "$folder" && echo "removed $folder"
            done
        fi
    ' - "$SLURM_JOB_ID" || echo "what containers of uid $uid left could not be removed"
