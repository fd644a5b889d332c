"""Schema: payloads of certain topics must match a JSON Schema."""
