#!/bin/sh
# keep-machine.sh RUN BOOT COMMAND...: runs COMMAND, which is a machine, and again after each reboot from inside, and
# where it crashed: a cloud restarts such a machine too (on Google Cloud: automaticRestart).
# It stands outside the machine's control group, which must have no process beside those of systemd-nspawn (cgroup v2).
set -eu

run=$1 boot=$2
shift 2

# systemd-nspawn --keep-unit ends with this code when its machine has rebooted, and leaves the rest to who started it.
rebooted=133
# And with this one when its first process was killed, also when it can't start at all: that is not tried again.
crashed=1 started=0

begin() { read -r started _ < /proc/uptime; started=${started%.*}; }
came_up() { read -r now _ < /proc/uptime; [ $((${now%.*} - started)) -ge 5 ]; }

while begin; "$@" && code=0 || code=$?; [ "$code" = "$rebooted" ] || { [ "$code" = "$crashed" ] && came_up; }; do
    # systemd takes a moment to give the name of an ended scope free. And slurmctld, which asked for the reboot, takes a
    # boot for it only if it was later, in whole seconds of two roundings: no other machine is up again as soon as that.
    sleep 2
    # Whoever stopped the machine meanwhile has removed the record, or has started it again with another one.
    grep -q "\"$boot\"" "$run" 2>/dev/null || exit 0
done
exit "$code"
