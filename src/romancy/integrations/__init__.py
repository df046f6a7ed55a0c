"""Integrations with other libraries. Each module needs its own extra, and uses only the public names of romancy."""
