"""One process of a node gives its clients to the next (``ildm upgrade``); see README.md."""
