#!/bin/sh
# Lets nobody but root reach the metadata server, at each boot before anybody can log in: whoever reaches it has the
# service account of the machine, and with it the cluster's secrets. Names and times stay open to all: its DNS, its NTP.
set -u

# apt fetches as a user of its own, with the service account where a repository asks for it.
allowed=0
if apt=$(id -u _apt 2>/dev/null); then
    allowed="0 $apt"
fi

if command -v nft >/dev/null; then
    # A table of our own, replaced in one step, beside whatever others have.
    exec nft -f - <<END
table inet hpc-metadata
delete table inet hpc-metadata
table inet hpc-metadata {
    chain output {
        type filter hook output priority 0; policy accept;
        ip daddr 169.254.169.254 tcp dport != 53 meta skuid != { $(echo "$allowed" | sed 's/ /, /') } reject with tcp reset
        ip6 daddr fd20:ce::254 tcp dport != 53 meta skuid != { $(echo "$allowed" | sed 's/ /, /') } reject with tcp reset
    }
}
END
elif command -v iptables-restore >/dev/null; then
    {
        echo '*filter'
        echo ':HPC-METADATA - [0:0]'
        for user in $allowed; do
            echo "-A HPC-METADATA -m owner --uid-owner $user -j RETURN"
        done
        echo '-A HPC-METADATA -j REJECT'
        echo COMMIT
    } | iptables-restore --wait --noflush || exit
    set -- OUTPUT -d 169.254.169.254/32 -p tcp ! --dport 53 -j HPC-METADATA
    iptables --wait -C "$@" 2>/dev/null || exec iptables --wait -I "$@"
else
    echo "WARNING: every user of this machine can reach the metadata server, and with it the cluster's secrets:" \
        "neither nft nor iptables is installed. Install the package nftables, and start the machine again." >&2
    exit 1
fi
