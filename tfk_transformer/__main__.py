"""`python -m tfk_transformer` is `tfk-transformer`."""

from tfk_transformer.cli import main

main()
