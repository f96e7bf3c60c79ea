"""Base images: what they are made of, and the cache of them."""
