"""The SQL layer that all databases share: plain functions that decide writes and run named statements of the dialects."""
