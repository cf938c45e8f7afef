"""Processes (ranks) that share one computation: detected from the environment, connected by MPI."""
