"""From the settings of a stack file to one ClusterConfig, or to every error at once."""
