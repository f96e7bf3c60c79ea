"""Users, groups, accounts and QOS of a running cluster."""
