"""The web page for operators."""
