"""Machines on Google Cloud: controller, login, nodesets, and what they boot with."""
