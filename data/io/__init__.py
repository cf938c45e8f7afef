"""Files, images, child processes and terminal output, independent of scenes."""
