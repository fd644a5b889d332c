"""Links with neighbour nodes: made, kept, and let into the cooperation."""
