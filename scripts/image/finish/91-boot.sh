#!/bin/bash
# Whether a machine that has just booted the finished image is well: what an image is for, seen before any node has it.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

wrong=0
bad() {
    say "wrong: $*"
    wrong=$((wrong + 1))
}
# Until nothing of the boot is under way but what runs this, and what waits for that.
waiting='google-startup-scripts|multi-user|graphical|cloud-(config|final|init)|update-utmp'
for _ in {1..60}; do
    systemctl list-jobs --no-legend | grep -qvE "$waiting" || break
    sleep "${HPC_PAUSE:-5}"
done
[[ -z ${KERNEL:-} || $(uname -r) == "$KERNEL" ]] || bad "the kernel $(uname -r) runs, not $KERNEL"
# Ours, and what nobody gets in or works without; others are printed.
ours='^(hpc-.*|ssh|docker|containerd|systemd-(networkd|networkd-wait-online|modules-load|udevd|sysctl)|google-guest-agent)'
while read -r unit _; do
    if [[ $unit =~ $ours ]]; then
        bad "$unit has failed: $(journalctl --no-pager -q -n 5 -o cat -u "$unit" | tr '\n' ' ')"
    else
        say "warning: $unit has failed"
    fi
done < <(systemctl list-units --failed --plain --no-legend)
for unit in ssh.service hpc-hostname.service hpc-localssd.service hpc-gpu.service docker.service; do
    if systemctl is-enabled --quiet "$unit" 2>/dev/null && ! systemctl is-active --quiet "$unit"; then
        bad "$unit is $(systemctl is-active "$unit")"
    fi
done
[[ $wrong == 0 ]] || die "a machine of this image would not work"
