"""`python -m tfk_transformer` runs the same program as `tfk-transformer`."""

from tfk_transformer.cli.main import main

main()
