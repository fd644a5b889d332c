"""A small MQTT client, to try a broker or a node with."""
