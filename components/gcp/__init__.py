"""A cluster on Google Cloud: networks, storage, image and machines, from typed resources."""
