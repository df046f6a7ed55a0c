"""The layer that encodes payloads on their way into any store, and decodes them on their way out."""
