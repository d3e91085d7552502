"""The npm package, as `scripts/npm/pack.py` packs it: in Node, with TypeScript, and in a page that
Vite builds.
"""

import json
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from run_wide import made_once
from web_needs import NODE_MODULES, SCRIPTS, browser, needs, needs_node, visit

from tfk_transformer.export.to_web.npm_packages import VERSIONS
from tfk_transformer.inference.signatures import TRANSLATE

pytestmark = [
    needs_node(),
    pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed"),
    needs(*VERSIONS),
]

FILES = Path(__file__).parents[1] / "saved_files"
EXPECTED = json.loads((FILES / "expected.json").read_text())
PACK = SCRIPTS / "npm" / "pack.py"
NAME = "tfk-transformer"
ADDRESS = "https://github.com/OWNER/NAME"
# The script of docs/browser.md, with a module of the package, and the options that a bundler needs.
SCRIPT = """
import {{ openTranslator }} from "{module}";
const translator = await openTranslator({{ file: "translate.onnx"{options} }});
document.body.textContent = (await translator.translate("forty-two")).text;
"""
PAGE = """<!doctype html>
<title>Numbers</title>
<body></body>
<script type="module" src="{script}"></script>
"""
MODULES = {"page": NAME, "worker": f"{NAME}/worker"}
VITE = """
export default { build: { rolldownOptions: { input: ["page.html", "worker.html"] } } };
"""


@pytest.fixture(scope="module")
def project():
    """A folder that has installed the package, and nothing else but its dependencies."""
    return made_once("npm", write_project)


def write_project(folder):
    folder.mkdir()
    packed = folder / "packed"
    environment = {**os.environ, "REPOSITORY": ADDRESS}
    command = [sys.executable, PACK, "--build", packed / "npm", "--dist", packed]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    tarball = Path(done.stdout[:-1])
    modules = folder / "node_modules"
    with tarfile.open(tarball) as archive:
        archive.extractall(modules, filter="data")
    package = (modules / "package").rename(modules / NAME)
    described = json.loads((package / "package.json").read_text())
    for name in described["dependencies"]:
        (modules / name).symlink_to(NODE_MODULES / name)
    (modules / ".bin").mkdir()
    for name, program in described["bin"].items():
        (modules / ".bin" / name).symlink_to(Path("..") / NAME / program)
    (folder / "package.json").write_text('{ "private": true, "type": "module" }')
    shutil.copyfile(FILES / "translate.onnx", folder / "translate.onnx")


def run(project, *command, text=None):
    done = subprocess.run(
        list(map(str, command)), cwd=project, input=text, capture_output=True, encoding="utf-8"
    )
    return done.returncode, done.stdout, done.stderr


def program(project, *arguments, text=None):
    return run(project, Path("node_modules", ".bin", NAME), *arguments, text=text)


def test_npx_runs_the_program(project):
    command = ["npx", "--offline", NAME, "translate.onnx", "forty-two"]
    assert run(project, *command) == (0, "zweundvierzig\n", "")


def test_package_has_metadata_and_licenses(project):
    metadata = json.loads((project / "node_modules" / NAME / "package.json").read_text())
    assert (metadata["name"], metadata["license"]) == (NAME, "Apache-2.0")
    assert metadata["dependencies"] == {"onnxruntime-web": VERSIONS["onnxruntime-web"]}
    # npm compares this address with the repository that publishes a release.
    assert metadata["repository"]["url"] == f"git+{ADDRESS}.git"
    for file in ("LICENSE", "README.md", "runtime/LICENSE-sentencepiece-js"):
        assert (project / "node_modules" / NAME / file).is_file()


@pytest.mark.parametrize(
    ("python", "npm"),
    [("1.2.3", "1.2.3"), ("0.1.0.dev0", "0.1.0-dev.0"), ("2.0.0rc1", "2.0.0-rc.1")],
)
def test_versions_are_semantic(python, npm):
    assert runpy.run_path(str(PACK))["npm_version"](python) == npm


def test_unusual_versions_are_refused():
    with pytest.raises(ValueError, match=r"^__version__: expected a version like .*, got 1\.2\.$"):
        runpy.run_path(str(PACK))["npm_version"]("1.2")


def test_program_matches_the_saved_results(project):
    options = [
        f"--{name.replace('_', '-')}={value}" for name, value in EXPECTED["settings"].items()
    ]
    status, out, error = program(project, "translate.onnx", "--json", *options, *EXPECTED["texts"])
    assert (status, error) == (0, "")
    for line, expected in zip(out.splitlines(), EXPECTED["hypotheses"], strict=True):
        hypotheses = json.loads(line)["hypotheses"]
        assert [hypothesis["text"] for hypothesis in hypotheses] == [text for text, _ in expected]
        scores = [hypothesis["score"] for hypothesis in hypotheses]
        np.testing.assert_allclose(scores, [score for _, score in expected], rtol=1e-5)


def test_program_reads_lines(project):
    assert program(project, "translate.onnx", text="seven\nforty-two\n") == (
        0,
        "sieben\nzweundvierzig\n",
        "",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "FILE: expected translate.onnx as the first argument, got none."),
        (["--json"], "FILE: expected translate.onnx as the first argument, got --json."),
        (["no.onnx", "x"], "no.onnx: expected a file, got none."),
        (["package.json"], "package.json: expected translate.onnx of tfk-transformer, got another"),
    ],
)
def test_program_refuses_other_files(project, arguments, message):
    status, out, error = program(project, *arguments)
    assert (status, out) == (1, "")
    assert message in error
    assert len(error.splitlines()) == 1


MODULE = """
import { readFileSync } from "node:fs";
import { openTranslator } from "tfk-transformer";
const { options, texts } = JSON.parse(readFileSync(0, "utf8"));
const translator = await openTranslator(options);
const hypotheses = [];
for (const text of texts) {
  const result = await translator.translate(text, { n_best: 2, splitSentences: false });
  hypotheses.push(result.hypotheses);
}
const { weights, shape } = await translator.attention(texts[0], hypotheses[0][0].ids);
console.log(JSON.stringify({ hypotheses, weights: [...weights], shape }));
"""


def module(project, options, texts):
    task = json.dumps({"options": options, "texts": texts})
    return run(project, "node", "--input-type=module", "-e", MODULE, text=task)


def test_module_runs_an_export(project, exported, translator):
    """The file has tokenizers of its own, all settings and score.onnx next to it."""
    texts = ["forty-two", "one hundred ninety-nine", "seven\u00a0x", "no number 😀"]
    status, out, error = module(project, {"file": str(exported / "translate.onnx")}, texts)
    assert (status, error) == (0, "")
    results = json.loads(out)
    expected = translator.translate(texts, n_best=2, attention=True, split_sentences=False)
    for hypotheses, translation in zip(results["hypotheses"], expected, strict=True):
        assert [each["text"] for each in hypotheses] == [
            each.text for each in translation.hypotheses
        ]
        scores = [each["score"] for each in hypotheses]
        np.testing.assert_allclose(
            scores, [each.score for each in translation.hypotheses], atol=1e-4
        )
    attention = expected[0].hypotheses[0].attention[:, :, : results["shape"][0]]
    np.testing.assert_allclose(results["weights"], attention.ravel(), atol=1e-5)


def test_module_opens_a_web_folder(project, web):
    status, out, _ = module(project, {"folder": str(web)}, ["forty-two"])
    assert status == 0
    assert json.loads(out)["hypotheses"][0][0]["text"] == "zweiundvierzig"


def test_module_needs_a_tokenizer(project, exported):
    status, _, error = module(project, {"file": str(exported / "generate.onnx")}, ["seven"])
    assert status == 1
    assert "Error: file: expected translate.onnx, got an ONNX file without a tokenizer" in error
    assert TRANSLATE.inputs[0].name == "text"  # text-operators.mjs has the name, too


def test_module_reads_webassembly_of_another_address(project):
    file = "node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.wasm"
    options = {"file": "translate.onnx", "wasm": file}
    status, out, error = module(project, options, ["forty-two"])
    # The program translates first, and then fails, because score.onnx is missing.
    assert "ort-wasm" not in error and "score.onnx" in error, (status, out)


def test_module_refuses_missing_webassembly(project):
    options = {"file": "translate.onnx", "wasm": "no.wasm"}
    status, out, error = module(project, options, ["forty-two"])
    assert (status, out) == (1, "")
    assert "no.wasm: expected a file, got none." in error


def test_module_needs_a_file(project):
    status, _, error = module(project, {}, [])
    assert status == 1
    assert "Error: openTranslator: expected the address of translate.onnx as file" in error


USER_PROGRAM = """
import { openTranslator, type Translation } from "tfk-transformer";
import { openTranslator as openInWorker } from "tfk-transformer/worker";

type Progress = { loaded: number; total?: number };
const onProgress = ({ loaded, total }: Progress) => console.log(loaded / (total ?? 1));
const translator = await openTranslator({ file: "translate.onnx", onProgress });
const options = { n_best: 2, early_stopping: "never" } as const;
const result: Translation = await translator.translate("seven", options);
console.log(result.hypotheses[0]?.text, translator.model.config.max_length);
if ("bytes" in translator.model) console.log(translator.model.parameters.toFixed());
const inWorker = await openInWorker({ file: new URL("https://example.com/translate.onnx") });
inWorker.close();
// @ts-expect-error: a setting that does not exist
await translator.translate("seven", { beams: 4 });
"""


@needs("typescript")
@pytest.mark.parametrize(
    ("resolution", "modules"), [("nodenext", "nodenext"), ("bundler", "esnext")]
)
def test_types_of_a_user_program(project, tmp_path, resolution, modules):
    (tmp_path / "node_modules").symlink_to(project / "node_modules")
    shutil.copyfile(project / "package.json", tmp_path / "package.json")
    (tmp_path / "user.ts").write_text(USER_PROGRAM)
    options = ["--noEmit", "--strict", "--target", "es2022", "--lib", "es2022,dom"]
    options += ["--module", modules, "--moduleResolution", resolution]
    compiler = NODE_MODULES / "typescript" / "bin" / "tsc"
    assert run(tmp_path, "node", compiler, *options, "user.ts") == (0, "", "")


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@contextmanager
def served(*folders):
    """Serve each folder at an origin of its own, and return the origins."""
    with ExitStack() as stack:
        origins = []
        for folder in folders:
            handler = partial(QuietHandler, directory=str(folder))
            server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), handler))
            stack.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            origins.append(f"http://127.0.0.1:{server.server_port}")
        yield origins


def write_site(project, folder, options):
    """Write two pages that translate: one in the page itself, one in a worker."""
    folder.mkdir()
    (folder / "node_modules").symlink_to(project / "node_modules")
    (folder / "package.json").write_text('{ "private": true, "type": "module" }')
    for name, module in MODULES.items():
        script = SCRIPT.format(module=module, options=options.get(name, ""))
        (folder / f"{name}.js").write_text(script)
        (folder / f"{name}.html").write_text(PAGE.format(script=f"{name}.js"))
    return folder


def build(site, *command):
    status, out, error = run(site, "node", *command)
    assert status == 0, out + error


def build_with_vite(project, folder):
    site = write_site(project, folder, {})
    (site / "vite.config.mjs").write_text(VITE)
    build(site, NODE_MODULES / "vite" / "bin" / "vite.js", "build")
    return site / "dist"


def build_with_esbuild(project, folder):
    """It copies no files and bundles no workers: both have an option."""
    wasm = ', wasm: "/ort-wasm-simd-threaded.wasm"'
    worker = ', worker: new Worker("worker-thread.js", { type: "module" })'
    site = write_site(project, folder, {"page": wasm, "worker": wasm + worker})
    (site / "worker-thread.js").write_text(f'import "{NAME}/worker-thread";')
    scripts = ["page.js", "worker.js", "worker-thread.js"]
    options = ["--bundle", "--format=esm", "--outdir=dist", "--log-level=warning"]
    build(site, NODE_MODULES / "esbuild" / "bin" / "esbuild", *scripts, *options)
    for name in ("page.html", "worker.html"):
        shutil.copyfile(site / name, site / "dist" / name)
    wasm_file = NODE_MODULES / "onnxruntime-web" / "dist" / "ort-wasm-simd-threaded.wasm"
    shutil.copyfile(wasm_file, site / "dist" / wasm_file.name)
    return site / "dist"


def build_with_parcel(project, folder):
    """Workers are modules only if the browsers of the project run such workers."""
    wasm_file = "npm:onnxruntime-web/dist/ort-wasm-simd-threaded.wasm"
    wasm = f', wasm: new URL("{wasm_file}", import.meta.url)'
    site = write_site(project, folder, {"page": wasm, "worker": wasm})
    described = {"private": True, "type": "module", "browserslist": "last 2 Chrome versions"}
    (site / "package.json").write_text(json.dumps(described))
    pages = ["page.html", "worker.html"]
    options = ["--no-cache", "--no-source-maps", "--no-autoinstall"]
    build(site, NODE_MODULES / "parcel" / "lib" / "bin.js", "build", *pages, *options)
    return site / "dist"


@needs("vite", "esbuild", "parcel", "playwright-core")
@pytest.mark.skipif(not browser(), reason="Chromium is not installed")
# Each bundler builds two pages, and Chromium compiles 14 MB of WebAssembly for each.
@pytest.mark.long
def test_a_bundled_page_of_three_lines(project, tmp_path):
    sites = []
    for builder in (build_with_vite, build_with_esbuild, build_with_parcel):
        sites.append(builder(project, tmp_path / builder.__name__))
        shutil.copyfile(project / "translate.onnx", sites[-1] / "translate.onnx")
    with served(*sites) as origins:
        pages = [f"{origin}/{name}.html" for origin in origins for name in MODULES]
        texts = visit("open_page.mjs", {"addresses": pages}, tmp_path)
    assert texts == ["zweundvierzig"] * 6
