"""Messages on their way: lanes, custody, retained values, other ways."""
