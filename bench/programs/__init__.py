"""Programs that the cases run beside ours."""
