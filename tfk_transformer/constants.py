"""Constants that exported files and the programs that run them share."""

__version__ = "0.2.0.dev0"

PAD_ID, START_ID, END_ID, UNKNOWN_ID = 0, 1, 2, 3

LENGTH_ALLOWANCE = 10  # tokens added to `max_length_factor` times the source's length

LANGUAGE_PATTERN = r"^\w[\w-]*$"  # of the code of a language
