#!/bin/sh
# trim-debian-13.sh ROOT: as trim-image.sh, and what debian-13 has beyond the others. A script of its own: with another
# trim-image.sh, machines of debian-12 that are up would be recreated.
set -eu

# By the name that users know.
ln -s nano-tiny "$1/usr/bin/nano"
chroot "$1" systemctl --quiet disable slurmrestd.service
exec "$(dirname "$0")/trim-image.sh" "$1"
