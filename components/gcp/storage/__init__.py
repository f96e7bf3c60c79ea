"""File systems on Google Cloud, one component for each kind."""
