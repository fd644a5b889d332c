"""Range queries: how they are divided, handed on and acknowledged."""
