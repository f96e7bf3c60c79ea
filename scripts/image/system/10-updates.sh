#!/bin/bash
# Nothing changes by itself any more: a kernel, driver or agent that is updated alone no longer fits the others. Packages
# come from one state of Ubuntu's archive, and a later one is taken by a new image.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

put /etc/apt/apt.conf.d/20auto-upgrades <<'END'
APT::Periodic::Update-Package-Lists "0";
APT::Periodic::Unattended-Upgrade "0";
END
systemctl mask --now --quiet unattended-upgrades.service apt-daily.service apt-daily-upgrade.service \
    apt-daily.timer apt-daily-upgrade.timer || true

if [[ -n ${SNAPSHOT:-} ]]; then
    archive ubuntu "$SNAPSHOT"
    # The sources that the image came with, in both forms; cloud-init would write them again on each machine.
    put "$APT/sources.list" <<<"# Ubuntu's are in sources.list.d/hpc-ubuntu.list."
    rm -f "$APT/sources.list.d/ubuntu.sources"
    put /etc/cloud/cloud.cfg.d/99-hpc-apt.cfg <<<'apt: {preserve_sources_list: true}'
fi

# The guest agent names and sets up network interfaces: another version of it has left machines with nine NICs offline.
agents=(google-compute-engine google-compute-engine-oslogin google-guest-agent google-osconfig-agent)
found=()
for name in "${agents[@]}"; do
    [[ -z $(installed "$name") ]] || found+=("$name")
done
[[ ${#found[@]} == 0 ]] || hold "${found[@]}"

# slurm's set-up is Python, and an image without one fails late and in the dark.
python3 -c 'import sys; assert sys.version_info >= (3, 8), sys.version; import json, ssl, urllib.request' ||
    die "python3 is missing, older than 3.8, or lacks ssl"
