#!/bin/sh
# Joins again when the controller's orders are no longer those that this machine follows.
# A shell loop: it costs next to nothing on hundreds of machines, and no notification crosses a network file system.
orders=/opt/apps/adm/hpc/cluster.json
while sleep 2; do
    [ -r "$orders" ] || continue
    cmp -s "$orders" /etc/hpc/orders.json || systemctl restart hpc-node.service
done
