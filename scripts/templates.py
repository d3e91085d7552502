"""Convert the templates of ONNX files again, after a change of search or scoring."""

from pathlib import Path

from tfk_transformer.runtime_environment import load_tensorflow

FOLDER = Path(__file__).parents[1] / "export" / "to_onnx" / "templates"


def main() -> None:
    """Write all templates."""
    load_tensorflow()
    from template_building import TEMPLATES, build

    for template in TEMPLATES:
        print(build(template, FOLDER))


if __name__ == "__main__":
    main()
