"""The node's own talk with its broker: injection, delivery, identifiers, versions, judgements."""
