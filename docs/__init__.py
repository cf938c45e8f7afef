"""Pages about the project, and the program that writes their tables from the code."""
