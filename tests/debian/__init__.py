"""The Debian package, as it is built, installed, used and removed."""
