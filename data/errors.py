"""The one kind of error a user can mend."""

LONGEST_SENTENCE = 2000  # characters; two paths of the greatest length some systems allow need less


class UserError(Exception):
    """A user's mistake, in one sentence: what is wrong, in which file, key or value, and how to mend it.

    The command line prints the sentence and exits with status 2; no traceback.
    """


def one_line(text: str) -> str:
    """`text` as it can be shown on a terminal, whatever a file's name or content put into it.

    Line breaks, escape sequences and other characters that do not print are spelt out; a long text loses its middle.
    """
    spelt = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    half = LONGEST_SENTENCE // 2  # what a message quotes stands in its middle
    return spelt if len(spelt) <= LONGEST_SENTENCE else f"{spelt[:half]}...{spelt[-half:]}"
