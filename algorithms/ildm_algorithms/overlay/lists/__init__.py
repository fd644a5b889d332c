"""The sorted lists: tables of own keys, insertion, repair, lookup, watching."""
