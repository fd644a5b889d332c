"""Messages on their way: senders, custody, retained values, other ways."""
