"""Translation on many machines: `python -m tfk_transformer.beam`; needs Apache Beam."""

from tfk_transformer.apps.beam.__main__ import main

if __name__ == "__main__":
    main()
