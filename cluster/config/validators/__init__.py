"""Rules for single values. Each function returns the value, or raises RefusedError with an example of a good one."""
