"""What a destroyed cluster must not leave behind."""
