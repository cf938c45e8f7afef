"""The one kind of error a user can mend."""


class UserError(Exception):
    """A user's mistake, in one sentence: what is wrong, in which file, key or value, and how to mend it.

    The command line prints the sentence and exits with status 2; no traceback.
    """
