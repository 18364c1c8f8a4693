"""Episodes to look at: figures now; animations and pages grow here."""
