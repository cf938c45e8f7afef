"""Rays to colours: where to sample, how opaque each section is, how sections add up."""
