#!/bin/sh
# Joins again when the controller's orders are no longer those that this machine follows, or can no longer be read; when,
# on Google Cloud, the stack has told it something else; and starts slurmd anew when it missed a change of slurm.conf:
# slurmctld hands new files only to nodes that answer just then. Once a minute it asks munged whether it vouches.
# A shell loop: it costs next to nothing on hundreds of machines, and no notification crosses a network file system.
board=/opt/apps/adm/hpc
fetched=/run/slurm/conf/slurm.conf
delivered=/etc/hpc/munge.key
key=/etc/munge/munge.key
refresh=/usr/local/lib/hpc/refresh
news=10 # its exit code where the stack has told this machine something else
late=0
tried=
turn=0
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
    # munged that runs and does not vouch is nobody's failure that systemd sees; joining again starts it anew.
    if [ "$turn" = 15 ] && ! { timeout 20 munge --no-input | timeout 20 unmunge; } >/dev/null 2>&1; then
        systemctl restart hpc-node.service
        continue
    fi
    # Another MUNGE key came after the controller had changed to it: whoever was first, both change together.
    if [ "$delivered" -nt "$key" ] && ! cmp -s "$delivered" "$key" &&
        grep -q "\"munge\": \"$(sha256sum <"$delivered" | cut -c1-12)\"" "$board/cluster.json"; then
        systemctl restart hpc-node.service
        continue
    fi
    if ! cmp -s "$board/cluster.json" /etc/hpc/orders.json; then
        systemctl restart hpc-node.service
        continue
    fi
    if [ ! -r "$fetched" ] || cmp -s "$board/etc/slurm.conf" "$fetched"; then
        late=0
        continue
    fi
    # On their way, usually; and once for each difference, should slurmctld itself run with other files.
    late=$((late + 1))
    [ "$late" -ge 5 ] || continue
    differ=$(cat "$board/etc/slurm.conf" "$fetched" | cksum)
    [ "$differ" != "$tried" ] || continue
    tried=$differ
    echo "slurmd runs with files that are not the controller's: starting it anew"
    systemctl try-restart slurmd.service
done
