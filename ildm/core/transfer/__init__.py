"""Messages on their way between sites: routing, lanes, retained messages."""
