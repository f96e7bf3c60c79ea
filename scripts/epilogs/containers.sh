#!/bin/bash
# Epilog: removes leftovers of a job's containers whose programs were killed: enroot's containers without a name, and
# images that apptainer has unpacked into /tmp because there is no squashfuse. Containers with a name stay, since users
# keep them. It runs as the user, because root must not follow names in folders that users can write to.
set -euo pipefail

cd /
IFS=: read -r _ _ uid gid _ home _ < <(getent passwd "$SLURM_JOB_UID") || exit 0
# A leftover that can't be removed in time is logged, and does not drain the node.
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
        # Another job of the user on this node may use such an image.
        if ! pgrep -U "$UID" >/dev/null -f "^Apptainer runtime parent"; then
            find /tmp -maxdepth 1 -type d -user "$UID" -name "rootfs-*" -print0 | while IFS= read -r -d "" folder; do
                chmod -R u+rwX "$folder"
                rm -rf "$folder" && echo "removed $folder"
            done
        fi
    ' - "$SLURM_JOB_ID" || echo "what containers of uid $uid left could not be removed"
