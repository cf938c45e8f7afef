"""Pages for a browser: one self-contained file each, that opens without a network."""
