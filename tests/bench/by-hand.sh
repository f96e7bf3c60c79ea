#!/bin/bash
# by-hand.sh up|down FOLDER NAME CIDR: sets up a Slurm cluster step by step, as a person does who follows a guide.
#
# It has the same machines and the same result as `./hpc up dev`: a controller with accounting, a login machine, two CPU
# nodes and a GPU node, two users with accounts and a QOS, jobs in both partitions. machines.py creates the
# machines in parallel, with a hosts file and shared folders; everything else is ssh and scp. Nothing waits longer than it
# must: connections stay open, and polls run ten times a second. `up` removes the cluster if it fails or is interrupted;
# `down` removes it at any time.
set -euo pipefail

case $#-${1-} in
    4-up | 4-down) ;;
    *)
        echo 'usage: by-hand.sh up|down FOLDER NAME CIDR' >&2
        exit 2
        ;;
esac
action=$1 folder=$2 name=$3 cidr=$4
python=${PYTHON:-python3}
work=$folder/$name-by-hand
password=OnlyByHand

controller=$name-controller login=$name-login-0 gpu=$name-gpu-0
cpus=("$name-cpu-0" "$name-cpu-1")
nodes=("${cpus[@]}" "$gpu")
others=("$login" "${nodes[@]}")
everyone=("$controller" "${others[@]}")

options=(
    -F none -i "$work/key" -o User=root -o BatchMode=yes -o LogLevel=ERROR -o ConnectTimeout=10
    -o UserKnownHostsFile="$work/known_hosts" -o GlobalKnownHostsFile=/dev/null
    -o ControlMaster=auto -o ControlPath="$work/%n" -o ControlPersist=60
)

address() { awk -v name="$1" '$1 == name { print $2 }' "$work/machines"; }

# The shell of the machine expands the line.
# shellcheck disable=SC2029
on() { ssh "${options[@]}" "$(address "$1")" "$2"; }

copy() { scp -q "${options[@]}" "$work/$1" "$(address "$2"):$3"; }

until_true() {
    local limit=$((SECONDS + 120))
    until "$@" >"$work/said" 2>&1; do
        if [ "$SECONDS" -gt "$limit" ]; then
            echo "by-hand.sh: not true within two minutes: $*" >&2
            cat "$work/said" >&2
            return 1
        fi
        sleep 0.1
    done
}

hang_up() {
    local socket
    for socket in "$work"/[0-9]*; do
        [ ! -S "$socket" ] || ssh "${options[@]}" -O exit "${socket##*/}" 2>/dev/null || true
    done
}

down() {
    hang_up
    "$python" -m tests.bench.machines remove "$folder" "$name"
    rm -rf "$work"
}

if [ "$action" = down ]; then
    down
    exit
fi
trap down EXIT
trap 'exit 130' INT TERM HUP

# Machines, and a key to all of them.
mkdir -p "$work"
chmod 700 "$work"
ssh-keygen -q -t ed25519 -N '' -f "$work/key"
"$python" -m tests.bench.machines make "$folder" "$name" "$cidr" "$work/key.pub" \
    "$controller=0" "$login=0" "${cpus[0]}=0" "${cpus[1]}=0" "$gpu=2" > "$work/machines"
awk '{ print $2, $3, $4 }' "$work/machines" > "$work/known_hosts"

# The shared file systems.
gateway=$("$python" -c 'import ipaddress, sys; print(ipaddress.IPv4Network(sys.argv[1])[1])' "$cidr")
for machine in "${everyone[@]}"; do
    on "$machine" "
        echo '$gateway@tcp:/home /home lustre defaults,_netdev 0 0' >> /etc/fstab
        echo '$gateway@tcp:/opt-apps /opt/apps lustre defaults,_netdev 0 0' >> /etc/fstab
        mkdir -p /opt/apps && mount /home && mount /opt/apps"
done

# MUNGE: a key on the controller, copied to all.
on "$controller" '
    mungekey --create
    chown munge:munge /etc/munge/munge.key
    chmod 400 /etc/munge/munge.key
    systemctl enable --quiet --now munge
    munge -n | unmunge >/dev/null'
scp -q "${options[@]}" "$(address "$controller"):/etc/munge/munge.key" "$work/munge.key"
for machine in "${others[@]}"; do
    copy munge.key "$machine" /etc/munge/munge.key
    on "$machine" '
        chown munge:munge /etc/munge/munge.key
        chmod 400 /etc/munge/munge.key
        systemctl enable --quiet --now munge'
done

# The same users, with the same numbers, on every machine.
for machine in "${everyone[@]}"; do
    on "$machine" '
        useradd --uid 2001 --user-group --shell /bin/bash --create-home alice
        useradd --uid 2002 --user-group --shell /bin/bash --create-home bob' 2>"$work/said"
done

# MariaDB, with the settings of Slurm's accounting page.
cat > "$work/slurm.cnf" <<'EOF'
[mysqld]
bind-address = 127.0.0.1
innodb_buffer_pool_size = 1024M
innodb_log_file_size = 64M
innodb_lock_wait_timeout = 900
max_allowed_packet = 16M
EOF
copy slurm.cnf "$controller" /etc/mysql/mariadb.conf.d/zz-slurm.cnf
on "$controller" "
    systemctl enable --quiet --now mariadb
    mariadb <<'EOF'
DELETE FROM mysql.global_priv WHERE User = '';
DROP DATABASE IF EXISTS test;
CREATE DATABASE slurm_acct_db;
CREATE USER 'slurm'@'localhost' IDENTIFIED BY '$password';
GRANT ALL PRIVILEGES ON slurm_acct_db.* TO 'slurm'@'localhost';
FLUSH PRIVILEGES;
EOF"

# slurmdbd.
cat > "$work/slurmdbd.conf" <<EOF
AuthType=auth/munge
DbdHost=$controller
SlurmUser=slurm
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurm/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageLoc=slurm_acct_db
StorageUser=slurm
StoragePass=$password
EOF
copy slurmdbd.conf "$controller" /etc/slurm/slurmdbd.conf

# slurm.conf and its companions, the same on all machines. Without PrologFlags=Contain, which Slurm's own pages advise,
# a burst of short jobs would go through by the scheduler's timer, four in three seconds.
cat > "$work/slurm.conf" <<EOF
ClusterName=$name
SlurmctldHost=$controller
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
PrologFlags=Contain
ReturnToService=2
SlurmctldTimeout=120
SlurmdTimeout=300
InactiveLimit=0
KillWait=30
MinJobAge=300
UnkillableStepTimeout=240
WaitTime=0
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=$controller
AccountingStorageEnforce=associations,limits,qos,safe
AccountingStorageTRES=gres/gpu
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=30
JobCompType=jobcomp/filetxt
JobCompLoc=/var/log/slurm/job_completions
MailProg=/usr/bin/mail
NodeName=$name-cpu-[0-1] CPUs=2 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=2048 State=UNKNOWN
NodeName=$gpu CPUs=2 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=2048 Gres=gpu:2 State=UNKNOWN
PartitionName=cpu Nodes=$name-cpu-[0-1] Default=YES MaxTime=24:00:00 DefMemPerCPU=1024 State=UP
PartitionName=gpu Nodes=$gpu MaxTime=12:00:00 DefMemPerCPU=1024 State=UP
EOF
echo "NodeName=$gpu Name=gpu File=/dev/nvidia[0-1]" > "$work/gres.conf"
printf '%s\n' ConstrainRAMSpace=yes ConstrainDevices=yes > "$work/cgroup.conf"
on "$controller" '
    mkdir -p /run/slurm /var/spool/slurmctld /var/log/slurm
    chown slurm:slurm /run/slurm /var/spool/slurmctld /var/log/slurm /etc/slurm/slurmdbd.conf
    chmod 600 /etc/slurm/slurmdbd.conf
    systemctl enable --quiet --now slurmdbd'
for machine in "${everyone[@]}"; do
    for file in slurm.conf gres.conf cgroup.conf; do
        copy "$file" "$machine" "/etc/slurm/$file"
    done
done
until_true on "$controller" 'sacctmgr -n show cluster'

# The accounting: cluster, accounts, QOS, users.
on "$controller" "
    set -e
    sacctmgr -i -Q add cluster $name
    sacctmgr -i -Q add account science description=Everybody organization=lab
    sacctmgr -i -Q add account research parent=science fairshare=3
    sacctmgr -i -Q add account teaching parent=science
    sacctmgr -i -Q add qos urgent priority=100 maxwall=01:00:00 maxjobsperuser=2
    sacctmgr -i -Q add user alice account=research qos=normal,urgent
    sacctmgr -i -Q add user bob account=teaching"

# The daemons, the controller's first.
on "$controller" 'systemctl enable --quiet --now slurmctld'
until_true on "$controller" 'scontrol ping | grep UP'
for machine in "${nodes[@]}"; do
    on "$machine" '
        mkdir -p /run/slurm /var/spool/slurmd /var/log/slurm
        systemctl enable --quiet --now slurmd'
done
until_true on "$controller" 'sinfo -h -N -t idle -o %N | sort -u | wc -l | grep -qx 3'

# A job in each partition, as a user, from the login machine.
for partition in cpu gpu; do
    on "$login" "runuser -u alice -- srun -p $partition hostname" >"$work/said"
done
trap - EXIT
hang_up
