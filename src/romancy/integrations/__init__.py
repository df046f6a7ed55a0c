"""What ties romancy to other libraries. Each module needs an extra of its own, and uses only the public names of romancy."""
