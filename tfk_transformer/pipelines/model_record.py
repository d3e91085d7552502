"""The class of a bundle's model, if it is not the library's own.

The file `model.json` names a class that the program has registered with Keras, and has the result
of its `get_config`; it contains no code.
"""

import json
from pathlib import Path
from typing import Any, TypeAlias

import keras

from tfk_transformer.config.small_files import read_json_object
from tfk_transformer.models.configured_model import ConfiguredModel
from tfk_transformer.models.registry import ModelConfig, make_model, stock_type
from tfk_transformer.models.reproduction import difference_from, library_type, one_line

MODEL = "model.json"
REGISTERED_NAME, ARGUMENTS = "registered_name", "config"
DECORATOR = "keras.saving.register_keras_serializable"

ModelRecord: TypeAlias = dict[str, Any]  # a JSON object


def record_of(model: ConfiguredModel) -> ModelRecord | None:
    """Return what a bundle records of a model, or refuse it if it would come out different.

    The result is None for a model of the library's own class, and for an unregistered subclass that
    computes the same, such as one with another `train_step`.
    """
    name = keras.saving.get_registered_name(type(model))
    if keras.saving.get_registered_object(name) is not type(model):
        if reason := difference_from(model):
            raise _not_reproduced(model, reason, f"register the class with @{DECORATOR}")
        return None
    arguments = check_remake(model)
    return None if arguments is None else {REGISTERED_NAME: name, ARGUMENTS: arguments}


def check_remake(model: ConfiguredModel) -> ModelRecord | None:
    """Check that the class of a model makes the same model again, apart from the weights' values.

    Return the arguments of a subclass as JSON values; None for the library's own class.
    """
    remedy = f"put the change into a subclass, registered with @{DECORATOR}"
    arguments = None
    if type(model) is not library_type(model):
        remedy = (
            "`get_config` must return the arguments of the constructor as JSON values, and `build` "
            "make all weights, in layers with names"
        )
        try:
            arguments = json.loads(json.dumps(model.get_config()))
        except (TypeError, ValueError, NotImplementedError) as error:
            raise _not_reproduced(model, one_line(error), remedy) from None
    if reason := difference_from(model, type(model), arguments):
        raise _not_reproduced(model, reason, remedy)
    return arguments


def _not_reproduced(model: ConfiguredModel, reason: str, remedy: str) -> ValueError:
    return ValueError(
        f"model: expected a {type(model).__name__} that its class and configuration describe, got "
        f"one that differs: {reason}; {remedy}."
    )


def make_recorded(config: ModelConfig, folder: Path, dtype: Any = "float32") -> ConfiguredModel:
    """Return a built model of the class that a bundle's folder records, else of the library's."""
    path = folder / MODEL
    if not path.is_file():
        return make_model(config, dtype=dtype)
    record = read_json_object(path)
    name, arguments = record.get(REGISTERED_NAME), record.get(ARGUMENTS)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ValueError(
            f"bundle: expected a {REGISTERED_NAME} and a {ARGUMENTS} in {path}, got "
            f"{', '.join(record) or 'an empty object'}; save the model again."
        )
    model_type = keras.saving.get_registered_object(name)
    library = stock_type(config)
    if not (isinstance(model_type, type) and issubclass(model_type, library)):
        problem = getattr(model_type, "__name__", "no such class")
        raise ValueError(
            f"bundle: expected a subclass of {library.__name__} that is registered with Keras as "
            f"{name!r}, which {path} names, got {problem}; import the module that registers it "
            "before loading."
        )
    try:
        return _make(model_type, arguments, config, dtype)
    except Exception as error:  # of any kind, from the code of the class
        raise ValueError(
            f"bundle: expected arguments of {name} in {path}, got an error: {one_line(error)}"
        ) from error


def remake(
    model: keras.Model, config: ModelConfig | None = None, dtype: Any = "float32"
) -> keras.Model:
    """Return a built model of the same class and arguments, with new weights."""
    config = config or model.config
    if type(model) is library_type(model):
        return make_model(config, dtype=dtype)
    return _make(type(model), model.get_config(), config, dtype)


def _make(
    model_type: type[ConfiguredModel], arguments: dict[str, Any], config: ModelConfig, dtype: Any
) -> ConfiguredModel:
    known = {"config": config.model_dump(mode="json")} if "config" in arguments else {}
    model = model_type.from_config({**arguments, **known, "dtype": dtype})
    model.build()
    return model
