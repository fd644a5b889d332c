"""What plugins are handed: the node's API, its sessions, what they keep."""
