"""Rules for single values. Each function returns the value, or raises Refused with an example of a good one."""
