#!/bin/bash
# Local SSDs as one fast disk at /mnt/localssd, made again whenever a machine comes with empty ones.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

packages mdadm
put "$OURS/localssd" 0755 <<'END'
#!/bin/bash
# Joins the local SSDs (RAID 0), makes a file system if there is none, mounts it, and has enroot and Docker use it.
# What a stopped machine had on them is gone: they come back empty, and this begins from nothing.
set -euo pipefail
array=/dev/md/localssd mount=/mnt/localssd
enroot=/etc/enroot/enroot.conf.d/50-localssd.conf docker=/run/hpc/docker.env

# Nothing points to the disks before they are there: enroot and Docker then use the boot disk.
rm -f "$enroot" "$docker"
shopt -s nullglob
disks=(${HPC_SSDS:-/dev/disk/by-id/google-local-nvme-ssd-*})
[[ ${#disks[@]} -gt 0 ]] || exit 0

mkdir -p "$mount"
if ! mountpoint -q "$mount"; then
    if [[ ! -e $array ]]; then
        mdadm --assemble --quiet "$array" "${disks[@]}" 2>/dev/null ||
            mdadm --create "$array" --name=localssd --homehost=any --level=0 --raid-devices="${#disks[@]}" --force --run \
                "${disks[@]}"
    fi
    # -m 0: nothing is kept back for root on a disk that may be lost at any time.
    [[ $(blkid -o value -s TYPE "$array" || true) == ext4 ]] || mkfs.ext4 -q -F -m 0 "$array"
    mount -o discard,defaults "$array" "$mount"
fi
chmod 1777 "$mount"
if [[ -d ${enroot%/*} ]]; then
    cat >"$enroot" <<'CONF'
ENROOT_RUNTIME_PATH /mnt/localssd/${UID}/enroot/runtime
ENROOT_CACHE_PATH /mnt/localssd/${UID}/enroot/cache
ENROOT_DATA_PATH /mnt/localssd/${UID}/enroot/data
ENROOT_TEMP_PATH /mnt/localssd/${UID}/enroot
CONF
fi
mkdir -p "${docker%/*}" "$mount/docker"
chmod 0711 "$mount/docker"
echo "HPC_DOCKER=--data-root=$mount/docker" >"$docker"
END
# Before whatever writes there, but none of it waits for its success: a machine that has lost its SSDs still boots.
put /etc/systemd/system/hpc-localssd.service <<END
[Unit]
Description=Local SSDs as one disk
After=local-fs.target systemd-udev-settle.service
Wants=systemd-udev-settle.service
Before=docker.service slurmd.service hpc-node.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=$OURS/localssd

[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl enable --quiet hpc-localssd.service
