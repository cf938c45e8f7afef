"""Pages about the project, and the program that writes the READMEs' tables from the code."""
