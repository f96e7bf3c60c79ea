"""Stack files, stack state, and the engine that runs a stack."""
