"""Many gateways and workers on one database, in virtual time, from one seed."""
