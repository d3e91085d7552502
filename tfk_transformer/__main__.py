"""`python -m tfk_transformer` is `tfk-transformer`."""

from tfk_transformer.cli.main import main

main()
