"""One function for each page: takes the request, returns a template and its values."""
