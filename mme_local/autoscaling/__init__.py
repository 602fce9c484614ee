"""Application Auto Scaling of the local cloud: it records targets and policies."""
