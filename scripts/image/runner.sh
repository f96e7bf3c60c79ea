# shellcheck shell=bash
# Runs the steps of an image in order. What stands above it in the program gives it: PLAN, the steps as "name hash", and
# `unpack`, which writes them to $ROOT/steps.
#
# Whoever waits reads $ROOT/state: `running NAME`, `done` or `failed NAME`. A step that has ended well is marked with its
# hash, so that a program which was killed, or restarted by a reboot, goes on where it was, and a changed step runs again.

REBOOT=194 # a step's exit code that asks for a restart of the machine
TAIL=40    # lines of a failed step's log that are shown
LOG=$HPC_LOG
METADATA=http://metadata.google.internal/computeMetadata/v1/instance/guest-attributes/hpc/bake

# Progress goes where somebody may look: the log, the serial console, and an attribute that is read from outside.
report() {
    local console
    printf '%s %s\n' "$(date -u +%FT%TZ)" "$*" >>"$LOG"
    for console in /dev/ttyS0 /dev/console; do
        printf 'hpc: %s\r\n' "$*" 2>/dev/null >"$console" && return
    done
    return 0
}

# Nobody may look, and then nothing must fail or wait for it: off Google Cloud there is no such server.
announce() {
    report "$*"
    python3 - "$METADATA" "$*" 2>/dev/null <<'PYTHON' || true
import socket, sys, time, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], sys.argv[2].encode(), {"Metadata-Flavor": "Google"}, method="PUT")
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for pause in (1, 2, None):
    try:
        opener.open(request, timeout=5).close()
        break
    except OSError as error:
        nowhere = isinstance(error, urllib.error.URLError) and isinstance(error.reason, socket.gaierror)
        if pause is None or nowhere:
            raise
        time.sleep(pause)
PYTHON
}

state() {
    printf '%s\n' "$*" >"$ROOT/.state"
    mv -f "$ROOT/.state" "$ROOT/state"
}

# fail NAME WHY START: the step's log begins at byte START of the whole log.
fail() {
    local name=$1 why=$2 start=$3 line
    tail -c "+$((start + 1))" "$LOG" | tail -n "$TAIL" >"$ROOT/failed.log"
    report "step $name failed: $why; the end of its log:"
    while IFS= read -r line; do report "  $line"; done <"$ROOT/failed.log"
    state "failed $name"
    # Last: who reads it looks at the console next, and should find all of the above.
    announce "failed: $name"
    echo "step $name failed: $why; the end of its log:" >&2
    cat "$ROOT/failed.log" >&2
    exit 1
}

# run_step NUMBER NAME HASH
run_step() {
    local number=$1 name=$2 hash=$3 status=0 start boot
    if [[ -f $ROOT/done/$name && $(<"$ROOT/done/$name") == "$hash" ]]; then
        return 0
    fi
    state "running $name"
    announce "step $number of ${#PLAN[@]}: ${name#*-}"
    start=$(stat -c %s "$LOG")
    # To the log only: the serial console takes 115200 bits a second, and a pipe would be held open by what a step leaves.
    HPC_LIBRARY=$ROOT/steps/library.sh "$ROOT/steps/$name" </dev/null >>"$LOG" 2>&1 || status=$?
    if [[ $status == "$REBOOT" ]]; then
        boot="$hash $(</proc/sys/kernel/random/boot_id)"
        # Asked for in this boot: the restart did not come about, because we were killed before it.
        if [[ -f $ROOT/rebooted/$name && $(<"$ROOT/rebooted/$name") == "$hash "* && $(<"$ROOT/rebooted/$name") != "$boot" ]]; then
            fail "$name" "it asks for a second restart of the machine" "$start"
        fi
        printf '%s' "$boot" >"$ROOT/rebooted/$name"
        report "step $name: restarting the machine, and going on then"
        sync
        systemctl reboot
        exit 0
    fi
    [[ $status == 0 ]] || fail "$name" "exit code $status" "$start"
    printf '%s' "$hash" >"$ROOT/done/.$name"
    mv -f "$ROOT/done/.$name" "$ROOT/done/$name"
}

main() {
    local number=0 entry
    umask 022
    mkdir -p "$ROOT"/{steps,done,rebooted} "$(dirname "$LOG")"
    touch "$LOG"
    # Held by the steps as well: after a killed run, the next waits until what it left behind has ended.
    touch "$ROOT/lock"
    chmod 0600 "$ROOT/lock" # whoever can open a file can hold its lock
    exec 9>"$ROOT/lock"
    flock -w 3600 9 || { echo "another run has held $ROOT/lock for an hour" >&2; exit 1; }
    unpack
    for entry in "${PLAN[@]}"; do
        number=$((number + 1))
        run_step "$number" "${entry% *}" "${entry#* }"
    done
    state "done"
    # Who reads it may stop the machine at once, and keep its disk.
    sync
    announce "done"
}

main
