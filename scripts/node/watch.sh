#!/bin/sh
# Restarts hpc-node.service, which joins the cluster again, if the config version differs from the applied one or can't
# be read; if, on Google Cloud, the stack has changed the machine's metadata; and if munged does not authenticate, which
# it checks once a minute. Restarts slurmd if it missed a change of slurm.conf, since slurmctld sends new files only to
# nodes that answer at that moment; and, if the reconcile loop requests it, so that slurmd registers as after a boot.
# It polls, because no notification crosses a network file system. A shell loop costs next to nothing on hundreds of
# machines. Files that have not changed since they were the same are read only once a minute.
state=/opt/apps/adm/hpc
fetched=/run/slurm/conf/slurm.conf
delivered=/etc/hpc/munge.key
key=/etc/munge/munge.key
refresh=/usr/local/lib/hpc/refresh
news=10 # its exit code if the stack has changed the machine's metadata
seen=/run/hpc # has files with the times of files that were the same
register=$state/register
options=/etc/default/slurmd
once=/run/hpc/slurmd-once
name=$(hostname)
heard=
late=0
tried=
turn=0
rm -f "$once" # left by a killed run

is_as_before() { [ -e "$1" ] && [ -e "$2" ] && [ ! "$1" -nt "$2" ] && [ ! "$1" -ot "$2" ]; }

# same FILE OTHER NAME
same() {
    [ "$turn" = 0 ] || ! is_as_before "$1" "$seen/$3" || ! is_as_before "$2" "$seen/$3-here" || return 0
    touch -r "$1" "$seen/$3" && touch -r "$2" "$seen/$3-here" && cmp -s "$1" "$2" && return 0
    rm -f "$seen/$3"
    return 1
} 2>/dev/null

while sleep 2; do
    turn=$(((turn + 1) % 30))
    if [ "$turn" = 0 ] && [ -x "$refresh" ]; then
        code=0
        "$refresh" || code=$?
        if [ "$code" = "$news" ]; then
            systemctl restart hpc-node.service
            continue
        fi
    fi
    # For systemd, a munged that does not authenticate has not failed. Joining again restarts it.
    if [ "$turn" = 15 ] && ! { timeout 20 munge --no-input | timeout 20 unmunge; } >/dev/null 2>&1; then
        systemctl restart hpc-node.service
        continue
    fi
    # Another MUNGE key was delivered after the controller had changed to it.
    if [ "$delivered" -nt "$key" ] && ! same "$delivered" "$key" munge-key &&
        grep -q "\"munge\": \"$(sha256sum <"$delivered" | cut -c1-12)\"" "$state/cluster.json"; then
        systemctl restart hpc-node.service
        continue
    fi
    if ! same "$state/cluster.json" /etc/hpc/orders.json config; then
        systemctl restart hpc-node.service
        continue
    fi
    # slurmctld waits for a boot after its request, and ignores a machine that booted before. With -b, slurmd reports
    # its own start as the boot. Not on a node that is up: its jobs would have begun before that boot.
    if [ -e "$register" ] && asked=$(grep "^$name " "$register") && [ "$asked" != "$heard" ]; then
        heard=$asked
        case $(timeout 20 scontrol --oneliner show node "$name") in
            *State=*POWERING_UP*)
                echo "slurmctld still waits for this machine's boot: restarting slurmd as after a boot"
                sed 's/^\(SLURMD_OPTIONS=".*\)"$/\1 -b"/' "$options" >"$once"
                systemctl try-restart slurmd.service
                rm -f "$once"
                ;;
        esac
    fi
    if [ ! -r "$fetched" ] || same "$state/etc/slurm.conf" "$fetched" slurm.conf; then
        late=0
        continue
    fi
    # Usually the new files are about to arrive. Only one restart per difference, since slurmctld may run with other
    # files.
    late=$((late + 1))
    [ "$late" -ge 5 ] || continue
    differ=$(cat "$state/etc/slurm.conf" "$fetched" | cksum)
    [ "$differ" != "$tried" ] || continue
    tried=$differ
    echo "slurmd runs with files that differ from the controller's: restarting it"
    systemctl try-restart slurmd.service
done
