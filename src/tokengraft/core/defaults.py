"""What the functions assume and the command line shows, apart so that neither must be imported."""

PIVOT = "eng_Latn"  # what premiums are relative to
SAMPLE_LINES = 256  # what is dear to measure is measured on so many lines a language
RESAMPLES = 1000  # of the bootstrap
MOST_POSITIONS = 4096  # at which distributions are compared, drawn at random where there are more
