"""Three sites on one machine, to see the node at work without setting anything up."""
