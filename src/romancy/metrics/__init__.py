"""What an app counts (`metrics`), and how `GET /metrics` writes it (`exposition`)."""
