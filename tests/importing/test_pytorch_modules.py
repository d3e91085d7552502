"""Modules of PyTorch: logits against the modules themselves, and what is refused."""

import json
import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tfk_transformer as tfk
from tfk_transformer.apps.cli import main
from tfk_transformer.constants import END_ID, START_ID
from tfk_transformer.importing.pytorch_modules.layouts import OUR_TABLE
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

torch = pytest.importorskip("torch")
import pytorch_modules as modules  # noqa: E402 (which needs torch)

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # of an odd number of heads
# The unpacked wheel of the package annalog 1.0.6: weights that somebody trained.
ANNALOG = Path(os.environ.get("TFK_TRANSFORMER_ANNALOG", "annalog"), "annalog")
SMILES = r"\[[^\]]*\]|%\d\d|Br|Cl|."
MOLECULES = [
    "CC(=O)Oc1ccccc1C(=O)O",
    "CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
    "CC(C)Cc1ccc(cc1)[C@@H](C)C(=O)O",
    "CC(=O)Nc1ccc(O)cc1",
    "Cc1ccc(cc1)S(=O)(=O)N",
    "Clc1ccc(Br)cc1C#N",
]

TORCHTEXT = {"unknown": 0, "pad": 1, "start": 2, "end": 3}
HARVARD = {"start": 0, "end": 1, "pad": 2, "unknown": 3}
CASES = {
    "torch": ("torch", modules.TorchModel, {}, TORCHTEXT, {}),
    "torch, pre-norm, gelu": (
        "torch",
        lambda: modules.TorchModel(norm_first=True, activation="gelu"),
        {"norm": "pre", "ff_activation": "gelu"},
        TORCHTEXT,
        {},
    ),
    "torch, no biases": ("torch", lambda: modules.TorchModel(bias=False), {}, TORCHTEXT, {}),
    "torch, other names": (
        "torch",
        lambda: modules.TorchModel(("encoder_embedding", "decoder_embedding", "fc_out")),
        {},
        TORCHTEXT,
        {},
    ),
    "annotated": ("annotated", modules.AnnotatedModel, {}, HARVARD, {}),
    "seq2seq": ("seq2seq", modules.TutorialModel, {}, TORCHTEXT, {}),
    "seq2seq, other ids": (
        "seq2seq",
        modules.TutorialModel,
        {},
        HARVARD | {"unknown": 7},
        {"special_ids": HARVARD | {"unknown": 7}},
    ),
}


def rows_by_id(ids, size):
    """The module's rows in the order of this library's ids."""
    first = [ids[name] for name in ("pad", "start", "end", "unknown")]
    return np.array(first + [row for row in range(size) if row not in first])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_logits_equal_the_module(case):
    layout, make, options, ids, passed = case
    module = modules.with_random_weights(make())
    model = tfk.from_pytorch(module.state_dict(), layout, num_heads=modules.H, **passed, **options)
    random = np.random.default_rng(1)
    source, target = random.integers(4, 19, (3, 7)), random.integers(4, 19, (3, 5))
    rows = [rows_by_id(ids, size) for size in (modules.S_VOCAB, modules.T_VOCAB)]
    start, end = (np.full((3, 1), row) for row in (START_ID, END_ID))
    # The module's sources have a start token, which the model adds itself.
    theirs = module(
        torch.tensor(rows[0][np.hstack([start, source, end])]),
        torch.tensor(rows[1][np.hstack([start, target])]),
    )
    actual = model({"source": np.hstack([source, end]), "target": np.hstack([start, target])})
    expected = theirs.detach().numpy()[:, :, rows[1]]
    np.testing.assert_allclose(np.array(actual), expected, atol=1e-4)


@pytest.fixture
def tutorial():
    """The weights of a module by name."""
    return modules.with_random_weights(modules.TutorialModel()).state_dict()


def refused(weights, layout="seq2seq", **options):
    with pytest.raises(ValueError) as error:
        tfk.from_pytorch(weights, layout, **{"num_heads": modules.H, **options})
    assert "\n" not in str(error.value)
    return str(error.value)


def test_numpy_arrays_are_read(tutorial):
    arrays = {name: tensor.numpy() for name, tensor in tutorial.items()}
    model = tfk.from_pytorch(arrays, "seq2seq", num_heads=modules.H)
    assert model.config.max_length == modules.ROWS - 1


def test_equal_tables_are_shared():
    module = modules.TorchModel()
    module.generator.weight = module.tgt_tok_emb.embedding.weight
    model = tfk.from_pytorch(module.state_dict(), "torch", num_heads=modules.H)
    assert model.config.tie_embeddings == "target"


def test_missing_unknown_token_is_never_predicted(tutorial):
    ids = {"pad": 0, "start": 1, "end": 2}
    model = tfk.from_pytorch(tutorial, "seq2seq", num_heads=modules.H, special_ids=ids)
    assert model.config.target_vocab_size == modules.T_VOCAB + 1


def test_heads_are_asked_for(tutorial):
    message = refused(tutorial, num_heads=None)
    assert message.startswith("num_heads: expected the number of attention heads")


@pytest.mark.parametrize("layout", ["torch", "annotated", "transformer"])
def test_other_layout_is_named(tutorial, layout):
    assert "the names fit 'seq2seq'" in refused(tutorial, layout)


def test_unknown_names_get_the_table_to_fill():
    message = refused({"my.weight": np.zeros((3, 2))})
    assert OUR_TABLE in message


def test_the_table_to_fill_has_the_names_of_a_model(tutorial):
    model = tfk.from_pytorch(
        tutorial, "seq2seq", num_heads=modules.H, positions="sinusoidal", encoder_final_norm=False
    )
    for path in model.named_weights:
        for part in path.replace("layer_1", "layer_N").replace("layer_0", "layer_N").split("/"):
            assert re.search(rf"\b{part}\b", OUR_TABLE), path


def test_array_that_the_layout_lacks_is_named(tutorial):
    message = refused({**tutorial, "encoder.gate.weight": torch.zeros(2, 2)})
    assert "got also 'encoder.gate.weight' (2, 2); rename" in message


@pytest.mark.parametrize(
    "ids", [{"pad": 0}, {"pad": 0, "start": 0, "end": 1}, {"pad": 0, "start": 1, "end": 99}]
)
def test_special_ids_are_checked(tutorial, ids):
    assert refused(tutorial, special_ids=ids).startswith("special_ids: expected different ids")


@pytest.fixture
def files(tmp_path, tutorial):
    """A training checkpoint and its vocabularies."""
    torch.save({"epoch": 3, "model_state_dict": tutorial}, tmp_path / "model.pt")
    special = ["<unk>", "<pad>", "<sos>", "<eos>"]
    for name, size in (("source", modules.S_VOCAB), ("target", modules.T_VOCAB)):
        letters = [chr(ord("a") + i) for i in range(size - len(special))]
        (tmp_path / f"{name}.txt").write_text("\n".join([*special, *letters]) + "\n")
    return tmp_path


def imported(*arguments):
    return CliRunner().invoke(main.app, ["import", *map(str, arguments)])


def test_command_imports_a_checkpoint(files):
    done = imported(
        files / "model.pt",
        *("--layout", "seq2seq", "--tokens", "characters", "--option", f"num_heads={modules.H}"),
        *("--vocab", files / "source.txt", "--vocab", files / "target.txt"),
        *("-o", files / "bundle", "--json"),
    )
    assert done.exit_code == 0, done.output
    notes = json.loads(done.stdout)["notes"]
    assert notes[0] == "special tokens: pad 1, start 2, end 3, unknown 0 (special_ids)"


def test_sentencepiece_models_are_read(files):
    """Their special ids are those of the module."""
    path = files / "vocabulary.model"
    SubwordTokenizer.train(["abcdefgh", "hgfedcba"], 13, "char").save(path)
    translator = tfk.import_model(
        files / "model.pt", layout="seq2seq", vocab=[path], options={"num_heads": modules.H}
    )
    weights = torch.load(files / "model.pt", weights_only=True)["model_state_dict"]
    (ids,) = translator.source_tokenizer.encode(["fade"])
    table = np.array(translator.model.named_weights["source_embedding/embeddings"])
    (rows,) = SubwordTokenizer.load(path).encode(["fade"])
    np.testing.assert_array_equal(table[ids], weights["encoder.tok_embedding.weight"][rows])


def test_options_that_no_weight_states_are_noted(files):
    translator = tfk.import_model(
        files / "model.pt",
        layout="seq2seq",
        tokens="characters",
        vocab=[files / "source.txt", files / "target.txt"],
        options={"num_heads": modules.H},
    )
    assert translator.origin["notes"][1] == (
        "the weights do not state num_heads=3, norm=post, norm_epsilon=1e-05, ff_activation=relu, "
        "scale_embeddings=true, positions=learned, source_prefix=[1], source_end=true (options)"
    )


def test_vocabulary_without_special_tokens_asks_for_them(files):
    (files / "source.txt").write_text("".join(f"{chr(97 + i)}\n" for i in range(modules.S_VOCAB)))
    with pytest.raises(ValueError, match="got none for pad, start, end; pass the ids"):
        tfk.import_model(
            files / "model.pt",
            layout="seq2seq",
            tokens="characters",
            vocab=[files / "source.txt"],
            options={"num_heads": modules.H},
        )


def read_files(files, tokens="characters", vocab="source.txt", **arguments):
    return tfk.import_model(
        files / "model.pt",
        layout="seq2seq",
        tokens=tokens,
        vocab=[files / vocab, files / "target.txt"],
        options={"num_heads": modules.H},
        **arguments,
    )


def test_texts_that_files_split_otherwise_are_noted(files):
    """A token that the vocabulary lacks is split into known ones."""
    lines = (files / "source.txt").read_text().replace("g\n", "aa\n").replace("h\n", "xy\n")
    (files / "source.txt").write_text(lines)
    notes = read_files(files, r"aa?|c+|.", probes=["aac", "accb"]).origin["notes"][2:]
    assert notes[0] == (
        "1 of 19 tokens of the vocabulary are never matched by the rule 'aa?|c+|.', such as xy"
    )
    assert "expected 'accb' as ['a', 'cc', 'b'] by the rule" in notes[1]


def test_search_settings_are_stored(files):
    translator = read_files(files, search={"beam_size": 1})
    assert translator.search == {"max_length_factor": 1000.0, "beam_size": 1}


def test_unknown_search_settings_are_refused(files):
    with pytest.raises(ValueError, match="beam_sise"):
        read_files(files, search={"beam_sise": 1})


def test_list_of_tokens_without_a_rule_asks_for_it(files):
    with pytest.raises(ValueError, match="tokens: expected the rule that splits texts"):
        read_files(files, tokens=None)


def test_pickled_vocabulary_is_refused(files):
    (files / "vocabulary.pkl").write_bytes(pickle.dumps({"itos": ["a"]}))
    with pytest.raises(ValueError, match="got a pickle, which could run code"):
        read_files(files, vocab="vocabulary.pkl")


def test_folder_is_refused_as_a_checkpoint(files):
    with pytest.raises(ValueError, match="expected a file of torch.save, got"):
        tfk.import_model(files, layout="seq2seq", vocab=[files / "source.txt"], tokens="words")


def test_checkpoint_without_a_layout_names_it(files):
    with pytest.raises(ValueError, match="--layout torch, annotated or seq2seq"):
        tfk.import_model(files / "model.pt")


@pytest.mark.long  # a search in PyTorch of 120 sources
@pytest.mark.skipif(
    not ANNALOG.is_dir(),
    reason="needs the unpacked wheel of annalog 1.0.6: TFK_TRANSFORMER_ANNALOG",
)
def test_translations_equal_those_of_annalog(tmp_path, monkeypatch):
    weights = ANNALOG / "ckpt_and_vocab" / "Lev_extended.pt"
    with (ANNALOG / "ckpt_and_vocab" / "stereo_experiment_vocab_ttf.pkl").open("rb") as file:
        tokens = pickle.load(file)["itos"]
    (tmp_path / "tokens.json").write_text(json.dumps(tokens))
    translator = tfk.import_model(
        weights,
        layout="seq2seq",
        vocab=[tmp_path / "tokens.json"],
        tokens=SMILES,
        options={"num_heads": 8},
    )
    found = translator.translate(MOLECULES, beam_size=24, n_best=24)
    texts = dict.fromkeys(hypothesis.text for each in found for hypothesis in each.hypotheses)
    sources = [text for text in texts if text][:120]
    monkeypatch.syspath_prepend(ANNALOG)
    expected = greedy_of_annalog(weights, tokens, sources)
    actual = [each.text for each in translator.translate(sources, beam_size=1)]
    assert actual == expected


def greedy_of_annalog(weights, tokens, sources):
    """Greedy translations of the package's own module and tokenizer."""
    from model_files import seq2seq_attention
    from model_files.vocabulary import SMILESTokenizer

    torch.set_num_threads(1)
    sizes = (len(tokens), 256, 3, 8, 512, 0.1, "cpu", 102)
    stacks = seq2seq_attention.Encoder(*sizes), seq2seq_attention.Decoder(*sizes)
    module = seq2seq_attention.Seq2Seq(*stacks, 1, 1, "cpu")
    module.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    module.eval()
    split = SMILESTokenizer().tokenize
    rows = [torch.tensor([2, *map(tokens.index, split(text)), 3]) for text in sources]
    source = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=1)
    mask = module.make_src_mask(source)
    target = torch.full((len(sources), 1), 2)
    with torch.no_grad():
        encoded = module.encoder(source, mask)
        while not (target == 3).any(1).all() and target.shape[1] < 101:
            logits, _ = module.decoder(target, encoded, module.make_trg_mask(target), mask)
            target = torch.cat([target, logits[:, -1].argmax(-1, keepdim=True)], 1)
    return ["".join(tokens[row] for row in ids[1 : ids.index(3)]) for ids in target.tolist()]
