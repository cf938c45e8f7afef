"""How good a surface is: against ground truth, points of structure from motion, and by the DTU protocol."""
