"""What everything else in data stands on: files, images, other processes, the terminal. It knows no scene."""
