"""What `./hpc test` does besides running pytest: format, lint, types, shell scripts, the schema."""
