"""Messages between nodes, and the codec that reads and writes them."""
