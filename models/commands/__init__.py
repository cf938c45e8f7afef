"""The modes of the command line: one module each, listed in table.py."""
