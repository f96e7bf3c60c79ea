"""Resources of the package `kubernetes` (pulumi-kubernetes 4.34): plain objects by kubectl, Helm releases by helm."""
