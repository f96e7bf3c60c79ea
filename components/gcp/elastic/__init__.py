"""Elastic nodes on Google Cloud: the rights of the controller that creates them, and their end with the stack."""
