"""What everything else in data stands on: files, pictures, other processes, the terminal. It knows no scene."""
