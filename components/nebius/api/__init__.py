"""Nebius's API, through its SDK.

The SDK is imported inside the functions that call it, so a preview does not import it. One SDK, with its thread and
its connections, serves a whole process.
"""
