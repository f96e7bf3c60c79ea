#!/bin/sh
# quick_acks.sh: lets this machine acknowledge at once what it sends to itself. Run before slurmdbd starts.
#
# slurmctld and sacctmgr keep a connection to slurmdbd, over which either side writes a message in two pieces. The second
# waits until the first is acknowledged (Nagle's algorithm), and the other side holds that back for 40 ms, as it may have
# something to say (delayed acknowledgments): twelve times 40 ms made every sacctmgr take half a second. `quickack` on
# the routes to this machine's own addresses (ip-route(8)) makes it 20 ms.
set -eu

ip -4 route show table local type local | while read -r route; do
    case $route in *quickack*) continue ;; esac
    # The route as it was printed, word by word.
    # shellcheck disable=SC2086
    ip -4 route change table local $route quickack 1
done
