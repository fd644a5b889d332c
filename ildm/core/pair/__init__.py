"""The pair: several nodes before one broker, one of which owns the site. See the README beside this file."""
