"""Effects of an edit of a stack file on running jobs."""
