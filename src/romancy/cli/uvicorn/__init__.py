"""The server of `romancy serve`: uvicorn, with a protocol that has read timeouts."""
