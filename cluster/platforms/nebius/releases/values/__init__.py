"""Parts of the values of the charts that make a SlurmCluster and its workers."""
