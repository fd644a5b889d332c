"""Beyond the papers.

What no paper measured, with the plugins themselves wherever it says so.
"""

PLACE = 5
