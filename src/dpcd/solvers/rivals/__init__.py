"""The methods that DP-CD and the default solvers are compared with, one a file."""
