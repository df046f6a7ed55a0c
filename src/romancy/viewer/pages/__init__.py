"""One function for each page: from a visit to a template and its values."""
