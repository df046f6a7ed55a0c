"""`romancy serve`: the server, and its protocol with read timeouts."""
