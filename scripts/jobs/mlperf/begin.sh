# shellcheck shell=bash
# What the preparation jobs of a benchmark share. DATA is its folder.

# Ends the job. Arguments: what is wrong, what to do.
fail() {
    printf 'error: %s\nto do: %s\n' "$1" "$2" >&2
    exit 1
}

# Arguments: a program, how to get it.
need() {
    command -v "$1" >/dev/null || fail "$1 is not on ${SLURMD_NODENAME:-this machine}" "$2"
}

# Runs a step once: a finished one leaves a file with what it was given. Arguments: name, what it was given, command.
once() {
    local name=$1 given=$2 done=$DATA/.hpc/$1
    shift 2
    if [[ -f $done && $(<"$done") == "$given" ]]; then
        echo "$name: already there"
        return
    fi
    echo "$name: begins, $(date +%FT%T)"
    "$@"
    printf '%s\n' "$given" >"$done.new"
    mv "$done.new" "$done"
    echo "$name: done, $(date +%FT%T)"
}

mkdir -p "$DATA/.hpc" || fail "$DATA can't be written" "choose another --data, or have its owner give it to you"
