"""The manual pages ``ildm(1)`` and ``ildm.yaml(5)``, made of what the program itself goes by.

The first is written from the command line's own table of commands and options, the second from the models
that check a configuration file: what they say of a command or a key stands in one place.
"""
