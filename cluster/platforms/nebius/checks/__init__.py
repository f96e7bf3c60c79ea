"""What a configuration for Nebius must not have, and what its author should know."""
