"""`python -m tfk_transformer` runs the same program as `tfk-transformer`."""

from tfk_transformer.apps.cli.main import main

main()
