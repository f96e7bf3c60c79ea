"""Plans of clusters on Google Cloud, made before anything is created there: names, labels, addresses, sizes."""
