import json
import re

import pytest

from tfk_transformer.config.model_options import LanguageModelConfig, TransformerConfig
from tfk_transformer.config.presets import PRESETS
from tfk_transformer.config.search_settings import (
    SETTING_DTYPES,
    SearchSettings,
    are_rules,
    default_numbers,
    own_defaults,
    search_defaults,
    setting_rules,
    settings_of_numbers,
)
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID

VOCABULARIES = {"source_vocab_size": 29, "target_vocab_size": 31}


def config(**changes):
    return TransformerConfig(**{**VOCABULARIES, **changes})


def test_special_ids_are_fixed():
    assert (PAD_ID, START_ID, END_ID, UNKNOWN_ID) == (0, 1, 2, 3)


def test_defaults_are_the_base_model():
    assert config().model_dump() == {
        **VOCABULARIES,
        "architecture": "encoder_decoder",
        "source_language": None,
        "target_language": None,
        "split_sentences": True,
        "model_dim": 512,
        "num_heads": 8,
        "key_dim": None,
        "value_dim": None,
        "attention_bias": (),
        "attention_scale": "sqrt_key_dim",
        "keys_are_values": False,
        "shared_projections": False,
        "attention_dropout": 0.0,
        "attention_output_dropout": 0.0,
        "decoder_attention_dropout": None,
        "decoder_mixer": "attention",
        "decoder_ff_dim": None,
        "ff_dim": None,
        "ff_expansion": 4,
        "ff_activation": "relu",
        "ff_gated": False,
        "ff_bias": True,
        "ff_dropout": 0.0,
        "norm": "pre",
        "norm_type": "layer",
        "norm_epsilon": 1e-6,
        "encoder_final_norm": None,
        "decoder_final_norm": None,
        "dropout": 0.1,
        "encoder_layers": 6,
        "decoder_layers": 6,
        "positions": "sinusoidal",
        "position_buckets": 32,
        "position_max_distance": 128,
        "position_offset": 0,
        "embedding_norm": False,
        "source_end": True,
        "source_prefix": (),
        "source_suffix": (),
        "target_prefix": (),
        "scale_embeddings": True,
        "embedding_dropout": None,
        "tie_embeddings": "none",
        "output_bias": False,
        "output": "logits",
        "max_length": 256,
    }
    assert config().ff_width == 2048


@pytest.mark.parametrize(
    ("name", "model_dim", "ff_dim", "num_heads", "layers", "dropout"),
    [
        ("tiny", 128, 512, 4, 2, 0.0),
        ("small", 256, 1024, 4, 3, 0.2),
        ("base", 512, 2048, 8, 6, 0.1),
        ("big", 1024, 4096, 16, 6, 0.3),
    ],
)
def test_presets_have_their_sizes(name, model_dim, ff_dim, num_heads, layers, dropout):
    sizes = {"model_dim": model_dim, "ff_dim": ff_dim, "num_heads": num_heads, "dropout": dropout}
    assert TransformerConfig.preset(name, **VOCABULARIES) == config(
        **sizes, encoder_layers=layers, decoder_layers=layers
    )


DOCUMENTS = [
    "yet_another_explanation",
    "from_zero",
    "step_by_step",
    "transformer_details",
    "from_scratch_pytorch",
]


def test_preset_list_is_complete():
    assert list(PRESETS) == ["tiny", "small", "base", "big", *DOCUMENTS]


@pytest.mark.parametrize("name", PRESETS)
def test_preset_keys_are_options(name):
    assert set(PRESETS[name]) <= set(TransformerConfig.model_fields)


def test_attention_bias_names_roles():
    assert config(attention_bias=True).attention_bias == ("query", "key", "value", "output")
    assert config(attention_bias=False).attention_bias == ()
    assert config(attention_bias=["output", "query"]).attention_bias == ("query", "output")
    with pytest.raises(
        ValueError,
        match="attention_bias.0: Input should be 'query', 'key', 'value' or 'output', got 'keys'",
    ):
        config(attention_bias=["keys"])


def test_ff_dim_overrides_expansion():
    assert config(ff_dim=37, ff_expansion=3).ff_width == 37
    assert config(model_dim=11, num_heads=11, ff_expansion=3).ff_width == 33


def test_layer_options_are_a_subset():
    options = config(norm="post", key_dim=13).layer_options(attention_dropout=0.3)
    assert (options.norm, options.key_dim, options.attention_dropout) == ("post", 13, 0.3)
    assert not hasattr(options, "source_vocab_size")


def test_a_preset_takes_changes():
    assert TransformerConfig.preset("base", **VOCABULARIES, ff_dim=37, norm="post") == config(
        ff_dim=37, norm="post"
    )


def test_unknown_preset_lists_presets():
    with pytest.raises(
        ValueError,
        match=(
            r"^preset: expected one of tiny, small, base, big, .*from_scratch_pytorch, got "
            r"'smal'\. Did you mean 'small'\?$"
        ),
    ):
        TransformerConfig.preset("smal", **VOCABULARIES)


def test_preset_needs_vocab_sizes():
    with pytest.raises(ValueError, match="^TransformerConfig: target_vocab_size: Field required$"):
        TransformerConfig.preset("base", source_vocab_size=29)


def test_head_widths_follow_the_model():
    assert (
        config(model_dim=22, num_heads=11).query_width,
        config(model_dim=22, num_heads=11).value_width,
    ) == (2, 2)
    assert (config(key_dim=13).query_width, config(key_dim=13).value_width) == (13, 64)
    assert (config(value_dim=17).query_width, config(value_dim=17).value_width) == (64, 17)


def test_config_survives_json():
    made = config(
        key_dim=13, norm="post", positions="learned", tie_embeddings="target", dropout=0.1
    )
    assert TransformerConfig.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("source_vocab_size", 3),
        ("target_vocab_size", 3),
        ("model_dim", 0),
        ("ff_dim", 0),
        ("num_heads", 0),
        ("key_dim", 0),
        ("value_dim", 0),
        ("encoder_layers", 0),
        ("decoder_layers", 0),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("attention_dropout", 1.0),
        ("attention_dropout", -0.1),
        ("ff_dropout", 1.0),
        ("ff_dropout", -0.1),
        ("norm", "middle"),
        ("norm_epsilon", 0.0),
        ("positions", "halves"),
        ("tie_embeddings", "source"),
        ("max_length", 1),
        ("position_offset", -1),
        ("ff_dim", 2.5),
        ("attention_bias", "perhaps"),
    ],
)
def test_out_of_range_value_is_named(key, value):
    with pytest.raises(
        ValueError,
        match=rf"^TransformerConfig: {key}: Input should be .*, got {re.escape(repr(value))}$",
    ):
        config(**{key: value})


@pytest.mark.parametrize(
    "changes",
    [
        {"source_vocab_size": 4},
        {"max_length": 2},
        {"dropout": 0.999},
        {"model_dim": 23, "num_heads": 11, "key_dim": 13, "value_dim": 17, "positions": "learned"},
        {"model_dim": 22, "num_heads": 5, "key_dim": 13, "value_dim": 17},
        {"source_vocab_size": 31, "tie_embeddings": "all"},
        {"tie_embeddings": "target"},
        {"source_prefix": (1, 28), "source_suffix": (28, 1), "target_prefix": (30,)},
    ],
)
def test_boundary_values_are_accepted(changes):
    assert {key: getattr(config(**changes), key) for key in changes} == changes


HEADS = "model_dim must be a multiple of num_heads unless key_dim and value_dim are given, got "
SLICES = "model_dim must be a multiple of num_heads with shared_projections, got "
OFFSET = "position_offset needs sinusoids, got 2 and positions='learned'; leave unused rows out"
PREFIXES = (
    "source_prefix needs ids from 1 to 28, the vocabulary without padding, got (29,); "
    "source_suffix needs ids from 1 to 28, the vocabulary without padding, got (0,); "
    "target_prefix needs ids from 1 to 30, the vocabulary without padding, got (30, 0)"
)
ONE_VOCABULARY = (
    "tie_embeddings='all' needs one vocabulary on both sides, got source_vocab_size "
    "29 and target_vocab_size 31"
)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model_dim": 22, "num_heads": 5}, HEADS + "22 and 5"),
        ({"model_dim": 22, "num_heads": 5, "key_dim": 13}, HEADS + "22 and 5"),
        ({"model_dim": 22, "num_heads": 5, "value_dim": 17}, HEADS + "22 and 5"),
        (
            {
                "model_dim": 22,
                "num_heads": 5,
                "key_dim": 13,
                "value_dim": 17,
                "shared_projections": True,
            },
            SLICES + "22 and 5",
        ),
        (
            {"key_dim": 13, "keys_are_values": True},
            "keys_are_values needs key_dim and value_dim to be equal, got 13 and 64",
        ),
        ({"tie_embeddings": "all"}, ONE_VOCABULARY),
        ({"positions": "learned", "position_offset": 2}, OFFSET),
        ({"positions": "relative", "position_offset": 2}, OFFSET.replace("learned", "relative")),
        (
            {"positions": "relative", "position_buckets": 8, "position_max_distance": 4},
            "position_max_distance must be above half of position_buckets, got 4 and 8",
        ),
        ({"tie_embeddings": "inputs"}, ONE_VOCABULARY.replace("all", "inputs")),
        ({"source_prefix": (29,), "source_suffix": (0,), "target_prefix": (30, 0)}, PREFIXES),
        (
            {"source_suffix": (7,), "positions": "relative"},
            "source_suffix needs absolute positions, got (7,) and positions='relative'",
        ),
        (
            {"target_prefix": (7,), "decoder_mixer": "ssru"},
            "target_prefix needs decoder_mixer='attention', since each step of an SSRU reads one "
            "token, got (7,) and decoder_mixer='ssru'; use source_prefix",
        ),
        (
            {"model_dim": 23, "num_heads": 5, "tie_embeddings": "all"},
            f"{HEADS}23 and 5; {ONE_VOCABULARY}",
        ),
    ],
)
def test_conflicts_are_all_reported(changes, problem):
    with pytest.raises(ValueError, match=f"^{re.escape('TransformerConfig: ' + problem)}$"):
        config(**changes)


def test_search_defaults():
    assert SearchSettings().as_dict() == {
        "beam_size": 4,
        "n_best": 1,
        "length_penalty": 0.6,
        "coverage_penalty": 0.0,
        "min_length": 0,
        "max_length": 256,
        "max_length_factor": 2.0,
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 1.0,
        "seed": 0,
        "repetition_penalty": 1.0,
        "no_repeat_ngram_size": 0,
        "length_penalty_form": "gnmt",
        "early_stopping": True,
        "forced_eos": False,
        "renormalize_logits": False,
    }


def test_setting_dtypes_keep_order():
    assert list(SETTING_DTYPES.items()) == [
        ("beam_size", "int32"),
        ("n_best", "int32"),
        ("length_penalty", "float32"),
        ("coverage_penalty", "float32"),
        ("min_length", "int32"),
        ("max_length", "int32"),
        ("max_length_factor", "float32"),
        ("temperature", "float32"),
        ("top_k", "int32"),
        ("top_p", "float32"),
        ("seed", "int32"),
        ("repetition_penalty", "float32"),
        ("no_repeat_ngram_size", "int32"),
        ("length_penalty_form", "int32"),
        ("early_stopping", "int32"),
        ("forced_eos", "int32"),
        ("renormalize_logits", "int32"),
    ]


def test_setting_rules_are_plain_data():
    rules = setting_rules()
    assert list(rules) == list(SETTING_DTYPES)
    assert rules["beam_size"] == {
        "default": 4,
        "type": "integer",
        "minimum": 1,
        "maximum": 1000,
        "description": "number of open hypotheses for each sentence; 1 is greedy search",
    }
    assert {key: rules["top_p"][key] for key in ("type", "exclusiveMinimum", "maximum")} == {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 1,
    }
    assert rules["forced_eos"] == {
        "default": False,
        "type": "boolean",
        "description": "at the maximum length, only the end token may follow, for free",
    }
    assert rules["early_stopping"]["enum"] == [False, True, "never"]
    assert are_rules(json.loads(json.dumps(rules)))


def test_choices_are_numbers_in_graphs():
    settings = SearchSettings(early_stopping="never", length_penalty_form="length", forced_eos=True)
    numbers = settings.as_numbers()
    assert (numbers["early_stopping"], numbers["length_penalty_form"]) == (2, 1)
    assert (numbers["forced_eos"], numbers["renormalize_logits"], numbers["seed"]) == (1, 0, 0)
    assert settings_of_numbers(numbers, setting_rules()) == settings.as_dict()
    assert settings.as_arrays()["early_stopping"].dtype == "int32"


@pytest.mark.parametrize(
    ("name", "value", "choices"),
    [
        ("early_stopping", 1, "false, true, never"),
        ("early_stopping", "true", "false, true, never"),
        ("forced_eos", 0, "false, true"),
        ("renormalize_logits", None, "false, true"),
        ("length_penalty_form", "GNMT", "gnmt, length, length_with_start"),
    ],
)
def test_choices_are_listed_in_errors(name, value, choices):
    problem = f"{name}: expected one of {choices}, got {value!r}."
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        SearchSettings(**{name: value})


def test_own_defaults_replace_the_library_s():
    rules = setting_rules(64, 37, {"beam_size": 3, "early_stopping": False})
    assert (rules["beam_size"]["default"], rules["early_stopping"]["default"]) == (3, False)
    assert own_defaults(rules, 64) == {"beam_size": 3, "early_stopping": False}
    assert default_numbers(rules)["early_stopping"] == 0
    assert own_defaults(setting_rules(64), 64) == {}


@pytest.mark.parametrize(
    "rule",
    [
        {"enum": ["a", "b"], "default": "c"},
        {"enum": 3, "default": 3},
        {"type": "boolean", "default": 1},
        {"type": ["boolean"], "default": True},
    ],
)
def test_rules_of_choices_are_checked(rule):
    assert not are_rules({**setting_rules(), "forced_eos": rule})


@pytest.mark.parametrize(
    ("max_length", "default"), [(None, 256), (64, 64), (256, 256), (1024, 256)]
)
def test_default_length_fits_model(max_length, default):
    assert search_defaults(max_length) == SearchSettings(max_length=default)
    assert {
        name: rule["default"] for name, rule in setting_rules(max_length).items()
    } == search_defaults(max_length).as_dict()
    assert setting_rules(max_length)["max_length"]["minimum"] == 1


def test_model_sizes_limit_settings():
    rules = setting_rules(64, 37).items()
    maximum = {name: rule["maximum"] for name, rule in rules if "maximum" in rule}
    assert maximum["beam_size"] == maximum["n_best"] == maximum["top_k"] == 37
    assert maximum["min_length"] == maximum["max_length"] == maximum["no_repeat_ngram_size"] == 64
    assert (maximum["seed"], maximum["top_p"], maximum["length_penalty"]) == (2**31 - 1, 1, 10)
    assert setting_rules(64, 32000)["beam_size"]["maximum"] == 1000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("beam_size", 0),
        ("n_best", 0),
        ("length_penalty", -0.1),
        ("max_length", 0),
        ("max_length_factor", -0.1),
        ("top_p", 0),
        ("top_p", 1.1),
        ("temperature", -1),
        ("temperature", 0.0009),
        ("repetition_penalty", 0.0009),
    ],
)
def test_bad_search_setting_is_named(key, value):
    with pytest.raises(
        ValueError, match=rf"^{key}: expected .* of (at least|above) \d.*, got {value}\.$"
    ):
        SearchSettings(**{key: value})


def test_n_best_fits_the_beam_size():
    assert SearchSettings(beam_size=3, n_best=3, length_penalty=0, max_length=1).n_best == 3
    with pytest.raises(
        ValueError,
        match="^n_best: expected at most beam_size, got n_best 5 and beam_size 3.$",
    ):
        SearchSettings(beam_size=3, n_best=5)


def test_min_length_fits_max_length():
    assert SearchSettings(min_length=7, max_length=7).min_length == 7
    with pytest.raises(
        ValueError,
        match="^min_length: expected at most max_length, got min_length 8 and max_length 7.$",
    ):
        SearchSettings(min_length=8, max_length=7)


@pytest.mark.parametrize("name", ["temperature", "repetition_penalty"])
def test_smallest_divisor_of_logits_is_accepted(name):
    assert SearchSettings(**{name: 0.001}).as_dict()[name] == 0.001


def test_zero_temperature_is_accepted():
    assert SearchSettings(temperature=0).temperature == 0


def test_relative_positions_need_attention():
    problem = "positions='relative' needs self-attention, got decoder_mixer='ssru'"
    with pytest.raises(ValueError, match=f"^LanguageModelConfig: {re.escape(problem)}$"):
        LanguageModelConfig(vocab_size=29, positions="relative", decoder_mixer="ssru")
