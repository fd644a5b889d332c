"""Whether what was acknowledged arrives: runs under faults, their histories, and the check of these."""
