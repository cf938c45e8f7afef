"""The kinds of model: what the trainer, the results and the commands know of one (protocol), and which there are."""
