"""Every code block of README.md, docs/ and benchmarks/ is run as a reader would, in a new folder.

Each block has processes of its own, and the files that it names. `python` and `tfk-transformer` are
forks of a process that has imported TensorFlow, but for programs that do without it. Data and
training are made small by the documented replacements below. Blocks that are not run are listed
with the reason.
"""

import functools
import importlib.util
import json
import os
import re
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
import t5_folder
from beam_environment import FOLDER as BEAM
from beam_environment import needs_beam
from classifier_folder import classifier_folder
from marian_folder import sentences, write_folder
from marian_npz_folder import write_file
from markdown_it import MarkdownIt
from multilingual_folder import (
    write_m2m100,
    write_mbart,
    write_mbart25,
    write_nllb,
    write_pegasus,
    write_small100,
)
from run_wide import made_once
from shell_commands import ShellCommands
from xla_flags import FAST_COMPILATION

REPOSITORY = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *(
        f"{folder}/{path.name}"
        for folder in ("docs", "benchmarks")
        for path in sorted((REPOSITORY / folder).glob("*.md"))
    ),
]

# Replacements that make the data of a page smaller. A later option on the command line replaces an
# earlier one.
SMALL_DATA = {
    "numbers:en-de": "files:numbers.en,numbers.de",
    "addition:5": "addition:2",
    "Helsinki-NLP/opus-mt-de-en": "opus-mt-de-en",
    '.toml").replace(': '.toml").replace(data="files:numbers.en,numbers.de", batch_tokens=512, '
    "warmup_steps=1, "
    "options=dict(encoder_layers=1, decoder_layers=1), ",
    "vocab_size=400": "vocab_size=80",
    "epochs=8": "epochs=1",
    '"target_vocab_size": tokenizer.vocab_size}': '"target_vocab_size": tokenizer.vocab_size, '
    '"encoder_layers": 1, "decoder_layers": 1}',
    "num_classes=2)": "num_classes=2, encoder_layers=1)",
    # tests/export/test_own_layers.py exports such a model in every default format.
    'tfk.export(translator, "rotary-files")': 'tfk.export(translator, "rotary-files", ["onnx"])',
}
SMALL_FINE_TUNING = " --epochs 1 --max-length 40 --batch-tokens 256 --warmup-steps 1"
SMALL_DATA_OPTIONS = " --epochs 1 --vocab-size 80 --max-length 48 --batch-tokens 512"
SMALL_LAYERS = " --option model_dim=16 --option ff_dim=16 --option num_heads=2"
SMALL_TRAINING = f"{SMALL_DATA_OPTIONS} --learning-rate 3e-3 --warmup-steps 2"

# Page, text that the block contains, reason why it is not run here.
NOT_RUN = [
    ("README.md", "./scripts/demo", "run by tests/programs/test_scripts.py"),
    ("README.md", "./scripts/test", "it runs this test suite"),
    ("README.md", "python3 -m venv", "downloads packages; .ci/run installs the package"),
    (
        "README.md",
        "tfk-transformer serve",
        "runs until it is ended; tests/server sends the request",
    ),
    ("README.md", "npm install", "downloads packages; tests/web exports the page and runs it"),
    (
        "README.md",
        "import keras",
        "run by tests/programs/test_scripts.py, with the data that the page names",
    ),
    ("docs/data.md", "curl", "downloads files; tests need no network"),
    ("docs/start.md", "doctor", "run by tests/cli/test_start_commands.py"),
    ("docs/dependencies.md", "pip install", "downloads packages; .ci/run installs them"),
    (
        "docs/scaling.md",
        "KERAS_DISTRIBUTION_PROCESS_ID=0",
        "needs two machines; tests/training/test_distribution.py starts such processes on one",
    ),
    ("docs/scaling.md", "#SBATCH", "needs Slurm"),
    (
        "docs/scaling.md",
        "--runner FlinkRunner",
        "needs job servers; tests/beam runs the pipeline through another one",
    ),
    (
        "benchmarks/confidence.md",
        "--calibrate",
        "needs a model of Multi30k; tests/export/test_confidence_files.py exports and evaluates",
    ),
    (
        "benchmarks/scaling.md",
        "benchmarks/beam.py",
        "takes minutes; tests/beam runs the program with few texts",
    ),
    (
        "docs/serving.md",
        "tfk-transformer serve ",
        "runs until it is ended; tests/server/test_protocols.py runs it and the curl commands",
    ),
    (
        "benchmarks/serving.md",
        "benchmarks/serve.py",
        "takes minutes; tests/programs/test_benchmark_serve.py runs the program",
    ),
    (
        "benchmarks/exports.md",
        "token_vocabularies.py",
        "needs a file of phones; tests/export and tests/web compare the same runtimes",
    ),
    ("benchmarks/pronunciation.md", "curl", "downloads files; tests need no network"),
    ("benchmarks/pronunciation.md", "import codespell_lib", "needs codespell and pypinyin"),
    (
        "benchmarks/pronunciation.md",
        "tfk-transformer train",
        "needs CMUdict and an hour; tests/programs/test_scripts.py trains by the recipe",
    ),
    ("docs/serving.md", "docker run --rm", "needs Docker"),
    ("docs/serving.md", "docker run …", "needs Docker and TensorFlow Serving"),
    (
        "docs/serving.md",
        "curl",
        (
            "needs a server; tests/server and tests/export/test_serving.py send the requests of "
            "the "
            "page"
        ),
    ),
    (
        "docs/serving.md",
        "import grpc",
        "needs a server; run by tests/export/test_serving.py against one",
    ),
    ("docs/serving.md", "saved_model_cli", "run by tests/export/test_serving.py"),
    ("docs/serving.md", "cc -O2", "run by tests/export/test_serving.py"),
    (
        "docs/models.md",
        "from transformers",
        "needs transformers and torch; run by tests/importing/test_transformers.py",
    ),
    (
        "docs/browser.md",
        "npm ci",
        (
            "downloads packages, and serves until it is ended; tests/web exports the folder and "
            "visits the page"
        ),
    ),
    ("docs/browser.md", "npm install", "downloads packages; .ci/run installs them"),
    (
        "docs/browser.md",
        "node ",
        "needs Node; tests/web and tests/programs/test_javascript.py run the programs",
    ),
    ("benchmarks/browser.md", "node ", "needs Node, Chromium and a model of Multi30k"),
    (
        "benchmarks/training.md",
        "benchmarks/decoding.py",
        "needs CTranslate2, Multi30k and minutes; see benchmarks/decoding.md below",
    ),
    (
        "benchmarks/training.md",
        "diversified",
        "trains three models, and exports two; blocks before it train and export alike",
    ),
    (
        "benchmarks/training.md",
        "benchmarks/training.py",
        "needs PyTorch and keras-hub; tests/programs/test_benchmark_training.py runs the program",
    ),
    (
        "benchmarks/decoding.md",
        "benchmarks/imported_model.py",
        "takes minutes, and two gigabytes of disk",
    ),
    (
        "benchmarks/documents.md",
        "benchmarks/documents.py",
        "needs Multi30k; tests/programs/test_benchmark_texts.py runs the program",
    ),
    (
        "benchmarks/documents.md",
        "benchmarks/document_files.py",
        "needs mistune, and files of sites",
    ),
    (
        "benchmarks/glossary.md",
        "benchmarks/glossary.py",
        "needs Multi30k; tests/programs/test_benchmark_texts.py runs the program",
    ),
    (
        "benchmarks/bulk.md",
        "benchmarks/endurance.py",
        "takes minutes; tests/cli/test_bulk.py runs the program with few lines",
    ),
    (
        "benchmarks/decoding.md",
        "benchmarks/decoding.py",
        "needs CTranslate2 and minutes; tests/programs/test_benchmark_decoding.py runs the program",
    ),
    (
        "benchmarks/decoding.md",
        "benchmarks/firefox_engine.py",
        "needs Bergamot, Python 3.10 and a model of Firefox; "
        "tests/programs/test_benchmark_decoding.py runs the other engine",
    ),
]
# Page, text that the block contains, reason why it takes more than two processor seconds.
LONG = [
    ("README.md", "tfk-transformer train", "trains, evaluates, and exports"),
    ("README.md", "tfk-transformer import", "imports, and exports"),
    ("docs/exports.md", "inspect numbers-files/translate.onnx", "exports every default format"),
    (
        "docs/exports.md",
        "numbers-shortlist",
        "exports 8-bit files, after a search for what they keep",
    ),
    ("docs/exports.md", 'export("numbers.onnx"', "exports, as other blocks do"),
    ("docs/exports.md", "import attention_map", "searches in Keras, and draws"),
    ("docs/exports.md", "ctranslate2", "traces a search of the model to compare with, and exports"),
    ("benchmarks/exports.md", "import onnx\nimport openvino", "compiles a search for a processor"),
    ("docs/exports.md", "numbers-onnx", "exports, as the block about one file does"),
    ("docs/exports.md", "import numpy as np\nimport openvino", "compiles a search for a processor"),
    ("docs/documents.md", "notes.html", "starts three programs, each of which searches"),
    ("docs/fine-tuning.md", "--average-of best", "imports, trains, evaluates twice, and exports"),
    ("docs/fine-tuning.md", "tfk.train(recipe", "imports, trains, and searches"),
    ("docs/fine-tuning.md", "--freeze encoder", "imports, and trains"),
    ("benchmarks/training.md", "recipes/multi30k", "trains twice, and evaluates or exports"),
    ("docs/models.md", "de-en-again", "imports, and exports"),
    ("docs/models.md", "--check", "imports, and starts transformers"),
    ("docs/models.md", "import nllb-200", "imports six models"),
    ("docs/models.md", "de_en.argosmodel", "imports two models"),
    ("docs/models.md", "tfk-transformer trim", "reads and writes bundles"),
    ("docs/after-transformers-5.md", "--check", "imports, and exports"),
    ("docs/after-transformers-5.md", "import pegasus", "imports, and searches in Keras"),
    ("docs/after-transformers-5.md", "import flan-t5", "imports, and searches in Keras"),
    ("docs/after-transformers-5.md", "answers", "imports, and searches in Keras"),
    ("docs/own-layers.md", "RotaryAttention", "trains, and exports"),
    ("docs/pytorch.md", "--layout", "imports a model, and PyTorch"),
    ("docs/pictures.md", "attention_figure", "searches in Keras, and draws four pictures"),
    ("docs/pictures.md", "encoder.svg", "starts four programs, each of which draws"),
    (
        "benchmarks/runtimes.md",
        "tfk-transformer train",
        "trains, exports, and evaluates",
    ),
    ("docs/running.md", 'for path in ("numbers"', "opens and searches with three runtimes"),
    (
        "docs/running.md",
        "tfk-transformer score numbers",
        "starts four programs, of which two search in Keras",
    ),
    ("docs/running.md", "--calibrate", "exports, and evaluates"),
    ("docs/running.md", "tfk.evaluate", "searches for 100 texts in Keras"),
    ("docs/scaling.md", "in/*.jsonl", "starts Apache Beam twice"),
    ("docs/scaling.md", "DataParallel", "JAX compiles a step for each shape of batches"),
    ("docs/scaling.md", "import ray", "starts a cluster of Ray, whose processes are not counted"),
    ("docs/streaming.md", "import onnxruntime\n", "opens four files, as docs/exports.md opens one"),
    ("docs/seeds.md", "--preset from_zero", "trains"),
    ("docs/seeds.md", "--out sums5", "trains, and evaluates"),
    ("docs/serving.md", "--serving models", "exports a SavedModel, which is loaded and compared"),
    ("docs/training.md", "--out sums", "trains, and searches"),
    ("docs/training.md", "--print-config", "trains"),
    ("docs/training.md", "--architecture encoder", "trains, and exports"),
    ("docs/training.md", 'languages-files/classify.onnx")', "trains, and exports every format"),
    (
        "docs/training.md",
        "tfk-transformer ensemble",
        "starts two programs, of which one searches with two models",
    ),
    ("docs/training.md", "train(Recipe.read", "trains"),
    ("docs/training.md", "tfk-transformer distill", "searches for every pair, and trains"),
    ("docs/training.md", "share_processors", "traces a step for two towers, for each shape"),
]
BACKENDS = {"docs/scaling.md": "jax"}  # where the page says so


# What runs in .venv-beam.
IN_BEAM = ("tfk_transformer.beam", "tfk_transformer.apps.beam", "pyspark", "import ray")


needs_ctranslate2 = pytest.mark.skipif(
    importlib.util.find_spec("ctranslate2") is None, reason="needs ctranslate2"
)


needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str

    @property
    def reasons(self) -> list[str]:
        return [reason for page, part, reason in NOT_RUN if page == self.page and part in self.text]

    @property
    def is_long(self) -> bool:
        return any(page == self.page and part in self.text for page, part, _ in LONG)

    @property
    def needs_ctranslate2(self) -> bool:
        """Whether it imports a folder that only CTranslate2's own specifications can write."""
        return "argosmodel" in self.text

    @property
    def in_beam(self) -> bool:
        return any(part in self.text for part in IN_BEAM)

    @property
    def in_tensorflow(self) -> bool:
        """Whether it is Python that imports TensorFlow; other Python must run without it."""
        imports = r"(?m)^(?:import|from) (?:tfk_transformer|keras|tensorflow)\b"
        return self.language == "python" and bool(re.search(imports, self.text))

    @property
    def trains(self) -> bool:
        return (
            "tfk-transformer train" in self.text
            or "tfk-transformer distill" in self.text
            or "fit(" in self.text
            or "train(" in self.text
        )

    @property
    def made(self) -> set[str]:
        """The files and folders that the block writes, which must not be there before."""
        return set(re.findall(r'(?:--out |(?:save|export|train)\((?:.*, )?")([\w.-]+)', self.text))


def blocks() -> list[Block]:
    return [
        Block(page, token.map[0] + 1, token.info, token.content)
        for page in PAGES
        for token in MarkdownIt().parse((REPOSITORY / page).read_text(encoding="utf-8"))
        if token.type == "fence" and token.info in ("bash", "python")
    ]


def cases():
    for block in blocks():
        if not block.reasons:
            marks = [pytest.mark.long] * block.is_long + [needs_beam] * block.in_beam
            marks += [needs_ctranslate2] * block.needs_ctranslate2
            marks += [needs_torch] * (block.page == "docs/pytorch.md")
            yield pytest.param(block, id=f"{block.page}:{block.line}", marks=marks)


def write_firefox(folder):
    """Write a student of Firefox, unpacked."""
    folder.mkdir()
    write_file(folder, student=True, dtype="int8")
    (folder / "target.spm").unlink()
    (folder / "source.spm").rename(folder / "vocab.deen.spm")
    (folder / "model.bin").rename(folder / "model.deen.intgemm.alphas.bin")


def write_argos(folder):
    """Write a model of CTranslate2, as a folder and in the archive of a package of Argos."""
    import ctranslate2_folder

    folder.mkdir()
    ctranslate2_folder.write_fairseq(folder / "ctranslate2-de-en")
    with zipfile.ZipFile(folder / "de_en.argosmodel", "w") as archive:
        for path in (folder / "ctranslate2-de-en").iterdir():
            inside = "sentencepiece.model" if path.suffix == ".model" else f"model/{path.name}"
            archive.write(path, f"de_en/{inside}")


def write_marian(folder):
    """Write a model of Marian with separate vocabularies."""
    folder.mkdir()
    tied = {"tied-embeddings-all": "false", "tied-embeddings": "true"}
    write_file(folder, separate=True, **tied)


def write_nllb_bundle(folder):
    """Write the bundle of an imported NLLB, whose vocabulary a page cuts."""
    from tfk_transformer.importing.model_import import import_model

    original = write_nllb(folder.with_name("nllb"), **ONE_LAYER)
    import_model(original, source_language="deu_Latn", target_language="eng_Latn").save(folder)


def write_opus(folder):
    write_folder(folder, max_length=40, forced_eos_token_id=None, **ONE_LAYER)


def write_module(folder):
    """Write the weights of a PyTorch module, and its vocabularies."""
    import torch
    from pytorch_modules import S_VOCAB, T_VOCAB, TutorialModel, with_random_weights

    folder.mkdir()
    torch.save(with_random_weights(TutorialModel()).state_dict(), folder / "module.pt")
    special = ["<unk>", "<pad>", "<sos>", "<eos>"]
    for name, size in (("source", S_VOCAB), ("target", T_VOCAB)):
        letters = map(chr, range(ord("a"), ord("a") + size - len(special)))
        (folder / f"{name}.txt").write_text("\n".join([*special, *letters]))


def one_layer(write):
    return functools.partial(write, **ONE_LAYER)


ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}
# Small models with random weights, which are made when a block names them.
MODELS = {
    "opus-mt-de-en": write_opus,
    "m2m100": one_layer(write_m2m100),
    "nllb-200": one_layer(write_nllb),
    "mbart-50": one_layer(write_mbart),
    "mbart-25": one_layer(write_mbart25),
    "small-100": one_layer(write_small100),
    "pegasus": one_layer(write_pegasus),
    "flan-t5": functools.partial(t5_folder.write_folder, **t5_folder.CASES["flan"]),
    "firefox-de-en": write_firefox,
    "marian": write_marian,
    "nllb-de-en": write_nllb_bundle,
}


def named_files(block: Block, translator) -> dict[str, Path]:
    """Return the models that a block names and does not write, by name."""
    text = shortened(block)
    writers = {**MODELS, "numbers.keras": translator.model.save}
    parts = {
        "ctranslate2-de-en": lambda: made_once("pages/argos", write_argos),
        "de_en.argosmodel": lambda: made_once("pages/argos", write_argos),
        **dict.fromkeys(
            ("module.pt", "source.txt", "target.txt"),
            lambda: made_once("pages/module", write_module),
        ),
        "languages": classifier_folder,
        "languages-files": classifier_folder,
    }
    needed = {name for name in {*writers, *parts} - block.made if name in text}
    return {
        name: made_once(f"pages/{name}", writers[name]) if name in writers else parts[name]() / name
        for name in needed
    }


@pytest.fixture(scope="module")
def prepared(bundle, exported, tmp_path_factory):
    """The other files that the pages name, made from number words."""
    from tfk_transformer.datasets.numbers import spell

    folder = tmp_path_factory.mktemp("documents")
    words = {
        language: [spell(number, language) for number in range(200)] for language in ("en", "de")
    }
    texts = {f"numbers.{language}": lines for language, lines in words.items()}
    texts |= {
        f"multi30k/{language}.{split}.txt": words[language]
        for language in words
        for split in ("train", "validation", "test")
    }
    texts["terms.tsv"] = ["two\tzwo", "hundred\thundert"]
    texts |= {"texts.txt": words["en"] + words["de"], "labels.txt": ["en"] * 200 + ["de"] * 200}
    for name, seed in (("mine", 1), ("held-out", 2)):
        texts |= {
            f"{name}.{language}": sentences(side, 40, seed)
            for language, side in (("de", "source"), ("en", "target"))
        }
    texts["in/numbers.jsonl"] = [
        json.dumps({"id": number, "text": text}) for number, text in enumerate(words["en"])
    ]
    for name, lines in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for name, target in (
        ("numbers", bundle),
        ("numbers-2", bundle),
        ("numbers-files", exported),
        ("de-en-files", exported),
    ):
        (folder / name).symlink_to(target)
    for name in ("benchmarks", "recipes"):
        (folder / name).symlink_to(REPOSITORY / name)
    return folder


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """The command and Python of this environment, for shells."""
    return ShellCommands(tmp_path_factory.mktemp("commands") / "bin")


def shortened(block: Block) -> str:
    text = block.text.replace("\\\n", " ")
    for whole, small in SMALL_DATA.items():
        text = text.replace(whole, small)
    # One page compares an import with transformers, and docs/exports.md exports every format.
    if block.page != "docs/models.md":
        text = text.replace(" --check", "")
    text = re.sub(r"(?m)^pip install .*\n", "", text)  # tests need no network
    if block.page in ("README.md", "benchmarks/runtimes.md"):
        text = re.sub(
            r"(?m)^tfk-transformer export (?!.*--format).*$", r"\g<0> --format onnx", text
        )
    if block.language == "bash":
        text = re.sub(r"(?m)^tfk-transformer (?:train|distill) [^#\n]*", small_training, text)
    return text


def small_training(line: re.Match) -> str:
    """Return a command that trains, with later options for one short epoch and small layers.

    Towers, of which each traces a step, are for training.md, whose Python has them.
    """
    line = line[0] + " --no-towers" * ("tfk-transformer train" in line[0])
    if "--from" in line:
        return f"{line}{SMALL_FINE_TUNING} "
    stacks = {"encoder": ["encoder"], "decoder": ["decoder"]}
    architecture = re.search(r"--architecture (\w+)", line)
    built = stacks[architecture[1]] if architecture else ["encoder", "decoder"]
    layers = "".join(f" --option {stack}_layers=1" for stack in built)
    layers += "" if "--preset from_" in line else SMALL_LAYERS  # their heads have sizes
    return f"{line}{SMALL_TRAINING}{layers} "


def run(block: Block, folder: Path, commands: ShellCommands) -> str:
    python = "python" if block.in_tensorflow or block.in_beam else sys.executable
    program = ["bash", "-euo", "pipefail", "-c"] if block.language == "bash" else [python, "-c"]
    environment = {}
    if block.page in BACKENDS:
        environment |= {"KERAS_BACKEND": BACKENDS[block.page], "XLA_FLAGS": FAST_COMPILATION}
    if block.in_beam:
        path = f"{BEAM}{os.pathsep}{os.environ['PATH']}"
        environment |= {"PATH": path, "RAY_USAGE_STATS_ENABLED": "0"}
    done = commands.run([*program, shortened(block)], cwd=folder, env=environment, timeout=1800)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_each_reason_fits_one_block():
    """A block that is gone, or that two reasons name, is noticed; so is a page without blocks that
    should have some.
    """
    actual = blocks()
    unused = [
        (page, part)
        for page, part, _ in NOT_RUN + LONG
        if not any(page == block.page and part in block.text for block in actual)
    ]
    assert unused == []
    assert sum(not block.reasons for block in actual) >= 25


@pytest.mark.parametrize("block", cases())
def test_a_code_block_runs(block, prepared, translator, commands, tmp_path):
    files = {path.name: path for path in prepared.iterdir()}
    for name, path in (files | named_files(block, translator)).items():
        if name not in block.made:
            (tmp_path / name).symlink_to(path)
    output = run(block, tmp_path, commands)
    for name in block.made:
        assert (tmp_path / name).exists()
    if not block.trains:
        for expected in re.findall(r"(?m)^ *print\(.*\)  # (.+)$", block.text):
            assert expected in output


def test_architecture_names_all_modules():
    """Each row of its table has the modules of its folder."""
    rows = re.findall(
        r"(?m)^\| `(tfk_transformer|[\w/]+)/`[^|]*\|[^|]*\| (`.*`) \|$",
        (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8"),
    )
    listed = {folder: sorted(re.findall(r"`(\w+)`", names)) for folder, names in rows}
    folders = {
        path.parent
        for root in ("tfk_transformer", "export")
        for path in (REPOSITORY / root).rglob("*.py")
    }
    modules = {
        path.relative_to(REPOSITORY).as_posix().removeprefix("tfk_transformer/"): sorted(
            module.stem for module in path.glob("*.py") if not module.stem.startswith("__")
        )
        for path in folders
    }
    assert listed == {folder: names for folder, names in modules.items() if names}


def test_the_readme_is_short():
    """A program of 17 lines leads from pairs to a file; every other way in has five at most."""
    lines = [
        len([line for line in block.text.splitlines() if line.strip()])
        for block in blocks()
        if block.page == "README.md"
    ]
    assert max(lines) == 17
    assert sorted(lines)[-2] <= 5
