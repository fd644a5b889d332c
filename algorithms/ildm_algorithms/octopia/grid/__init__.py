"""The grid of clusters and regions: its members, who is alive, and the next hop to each."""
