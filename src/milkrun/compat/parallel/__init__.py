"""Environments side by side: `Envs` plays batches, links and plain environments as one (`envs`, `turns`, `returns`)."""
