"""Import every module of the installed wheel, which must have all files of the repository.

python .ci/wheel_modules.py REPOSITORY    (outside the repository)
"""

import importlib
import pkgutil
import sys
from pathlib import Path

import tfk_transformer

installed, repository = Path(tfk_transformer.__file__).parent, Path(sys.argv[1])
assert str(installed).startswith(sys.prefix), installed
modules = [each.name for each in pkgutil.walk_packages([str(installed)], "tfk_transformer.")]
# The modules of beam/ need Apache Beam, which .venv cannot have. Their tests import the modules in
# .venv-beam.
modules = [name for name in modules if ".apps.beam." not in name and "__main__" not in name]
for name in modules:
    importlib.import_module(name)

package, export = repository / "tfk_transformer", repository / "export"
files = [path.relative_to(package) for path in package.rglob("*.py")]
files += [path.relative_to(repository) for path in export.rglob("*.py")]
files += [path.relative_to(repository) for path in (export / "to_web" / "page").iterdir()]
missing = [str(path) for path in files if not (installed / path).is_file()]
assert not missing, missing
print(len(modules), "modules import from the wheel")
