"""Messages on their way between sites: routing, senders, retained messages."""
