"""The peers: RL4CO, Jumanji, VMAS, SAPIEN, MuJoCo's renderer, a torch version of DARP, and C written by hand."""
