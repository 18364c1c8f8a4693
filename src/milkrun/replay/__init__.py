"""Episodes to look at: figures, films, files and pages."""
