"""A run: its folder, log, lock and time, the chunk that fits, and the training that is saved and shared by ranks."""
