"""Links between nodes: handshake, states, topology, rules, memory."""
