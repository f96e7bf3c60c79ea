"""Google Cloud without its API: names, addresses, file systems, image, checks, impacts, permissions."""
