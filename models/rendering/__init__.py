"""From rays to colours: samples, opacities of intervals, compositing."""
