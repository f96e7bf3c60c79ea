"""What we know of a cluster on Google Cloud before anything is made there: names, labels, addresses, sizes."""
