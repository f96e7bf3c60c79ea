#!/bin/bash
# The devices of A3 Mega's network that GPUs write to directly, as jobs' containers look for them.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

put /etc/udev/rules.d/00-hpc-aperture.rules <<'END'
# A3 Mega: each aperture's folder in sysfs appears below /dev/aperture_devices, open to the containers of jobs.
ACTION=="add", SUBSYSTEM=="pci", ATTR{vendor}=="0x1ae0", ATTR{device}=="0x0084", TAG+="systemd", RUN+="/usr/local/lib/hpc/image/aperture %S%p %k"
END
put "$OURS/aperture" 0755 <<'END'
#!/bin/sh
# aperture SYSFS NAME: shows the device as /dev/aperture_devices/NAME.
set -eu
mkdir -p -m 0755 /dev/aperture_devices
# udev runs in a mount namespace of its own; systemd mounts where everybody sees it.
systemd-mount --type=none --options=bind --collect "$1" "/dev/aperture_devices/$2"
chmod a+rw "/dev/aperture_devices/$2"/resource*
END
put "$OURS/wait-for-apertures" 0755 <<'END'
#!/bin/sh
# Waits until every aperture of this machine is shown, at most a minute; a machine without any does not wait.
pci=${HPC_PCI:-/sys/bus/pci/devices} shown=${HPC_APERTURES:-/dev/aperture_devices} seconds=${HPC_SECONDS:-60}
want=0
for device in "$pci"/*; do
    [ "$(cat "$device/vendor" "$device/device" 2>/dev/null | tr -d '\n')" = 0x1ae00x0084 ] && want=$((want + 1))
done
[ "$want" = 0 ] && exit 0
while :; do
    have=0
    # sysfs always has this one; resource0 and the like only where the device has such a region.
    for device in "$shown"/*/resource; do
        [ -e "$device" ] && have=$((have + 1))
    done
    [ "$have" -ge "$want" ] && exit 0
    [ "$seconds" -gt 0 ] || break
    sleep 1
    seconds=$((seconds - 1))
done
echo "$have of $want aperture devices are in $shown: jobs on several nodes would run slowly over plain TCP" >&2
# 255 and not 1: systemd takes 1 for a reason not to start slurmd at all, and does not try again.
exit 255
END
put /etc/systemd/system/slurmd.service.d/aperture.conf <<END
[Service]
ExecCondition=$OURS/wait-for-apertures
END
systemctl daemon-reload
