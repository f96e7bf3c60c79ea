"""How machines with private addresses are reached."""
