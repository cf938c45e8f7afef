"""Processes that share one piece of work: found out from the environment, kept together by MPI, ended together."""
