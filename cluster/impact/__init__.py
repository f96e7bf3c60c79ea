"""What an edit of a stack file does to running jobs."""
