"""Those we measure ourselves against: RL4CO, Jumanji, and C written by hand."""
