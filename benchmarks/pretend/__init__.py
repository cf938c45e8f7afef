"""A GPU that is not there: libraries that take all calls and do nothing, for what can be checked without one."""
