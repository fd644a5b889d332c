"""What survives a restart of the node."""
