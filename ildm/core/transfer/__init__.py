"""Messages on their way between sites: routing, lanes, injection, retained messages."""
