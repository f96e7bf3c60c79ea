"""The image of machines on Google Cloud: where it comes from and what is in it."""
