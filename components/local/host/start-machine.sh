#!/bin/sh
# start-machine.sh RUN BOOT BASE UPPER WORK ROOT COMMAND...: becomes COMMAND with ROOT mounted from BASE and UPPER.
# Runs in a mount namespace of its own, so that the mount ends with the machine. Who we are is on record before
# anything else happens: whoever is interrupted while it starts a machine, the next run finds the machine. If that run
# comes before the record it finds nothing, and starts the machine with another BOOT: then we are not wanted any more.
set -eu

run=$1 boot=$2 base=$3 upper=$4 work=$5 root=$6
shift 6

wanted=
read -r wanted < "${run%/*}/wanted" || :
[ "$wanted" = "$boot" ] || { echo "another start of this machine has taken over" >&2; exit 1; }

read -r stat < /proc/$$/stat
# Fields are counted from behind the command's name, which is in brackets: the state is the third, the start the 22nd.
# shellcheck disable=SC2086
set_fields() { set -- ${stat##*) }; started=${20}; }
set_fields
printf '{"pid": %s, "started": %s, "boot": "%s", "boot_id": "%s"}\n' \
    $$ "$started" "$(cat /proc/sys/kernel/random/boot_id)" "$boot" > "$run.new"
mv "$run.new" "$run"

mount -t overlay hpc-machine -o "lowerdir=$base,upperdir=$upper,workdir=$work" "$root"

# The machine's uptime counts from here. Slurm sees by it that a node has rebooted, and that its jobs are gone; on the
# host's own uptime it would wait for them for ever. A kernel without time namespaces has to do without.
if [ -e /proc/self/ns/time ]; then
    IFS=. read -r uptime _ < /proc/uptime
    set -- unshare --time --boottime "-$uptime" "$@"
fi
exec "$@"
