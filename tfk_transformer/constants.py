"""What graphs and the programs that call them agree on."""

PAD_ID, START_ID, END_ID, UNKNOWN_ID = 0, 1, 2, 3

LENGTH_ALLOWANCE = 10  # tokens that a target may have more than max_length_factor says
