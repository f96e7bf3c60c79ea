#!/bin/bash
# Waits until a Lustre file system answers: its management server on LNet's port and, with --web, the web server that
# EXAScaler starts last. Prints what is missing after the timeout. Any response of the web server is enough, because no
# machine installs its Lustre client from there; if it does not answer, that is printed and is not an error.
#
#   lustre_ready.sh ADDRESS SECONDS [--web]
#
# It needs only bash, since the machine may have no Lustre client yet. LNET_PORT and HTTP_PORT are for tests.
set -u

address=$1
seconds=$2
web=${3:-}
lnet=${LNET_PORT:-988}
http=${HTTP_PORT:-80}
end=$((SECONDS + seconds))

answers() {
    timeout 5 bash -c "exec 3<>/dev/tcp/$address/$1" 2>/dev/null
}

serves() {
    local status
    status=$(timeout 10 bash -c "
        exec 3<>/dev/tcp/$address/$http
        printf 'GET / HTTP/1.0\r\nHost: $address\r\n\r\n' >&3
        head -n 1 <&3
    " 2>/dev/null)
    [[ $status == HTTP/1.* ]]
}

missing() {
    answers "$lnet" || { echo "its management server does not answer at $address:$lnet (LNet)"; return; }
    [[ -z $web ]] || serves || echo "the web server of $address, which it starts last, does not answer at port $http"
}

shown=
while true; do
    what=$(missing)
    if [[ -z $what ]]; then
        echo "the Lustre file system at $address answers"
        exit 0
    fi
    if ((SECONDS >= end)) && answers "$lnet"; then
        echo "the Lustre file system at $address answers; after $seconds s $what"
        exit 0
    fi
    if ((SECONDS >= end)); then
        {
            echo "the Lustre file system at $address is not ready after $seconds s: $what"
            echo "to do: look at its servers' consoles (gcloud compute instances get-serial-port-output NAME), where"
            echo "       loci says what it waits for; then run up again: nothing that is done is done twice"
        } >&2
        exit 1
    fi
    if [[ $what != "$shown" ]]; then
        echo "waiting: $what"
        shown=$what
    fi
    sleep 2
done
