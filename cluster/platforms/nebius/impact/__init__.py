"""What an edit does to running jobs on Nebius."""
