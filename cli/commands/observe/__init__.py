"""Commands that show how a cluster is."""
