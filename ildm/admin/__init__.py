"""The admin API of a node on a unix socket, and its clients."""
