"""Recorded episodes as figures, films, files and pages."""
