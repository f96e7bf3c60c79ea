"""The bake: an image of a machine that installed all that a cluster's machines need, as one resource.

It imports Google's client inside the functions that call it: a preview needs no import of it.
"""
