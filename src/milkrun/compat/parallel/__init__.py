"""`Envs`: batches, links and plain environments stepped in lockstep (`envs`, `lockstep`, `rows`, `returns`)."""
