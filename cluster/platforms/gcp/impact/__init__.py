"""What edits of fields that only Google Cloud has do to running jobs."""
