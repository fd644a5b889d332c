"""Pages for people: what the node does now, in a browser. See the README."""
