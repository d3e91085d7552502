"""The JSON schema of recipes, with which editors complete and check TOML files."""

import itertools
from typing import Any, TypeAlias

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import NullableSchema, TupleSchema, WithDefaultSchema

from tfk_transformer.config.presets import PRESETS
from tfk_transformer.config.record import Record
from tfk_transformer.config.search_settings import setting_rules
from tfk_transformer.models.registry import TRAINED
from tfk_transformer.training.recipe import DECIDED_OPTIONS, Recipe

Schema: TypeAlias = dict[str, Any]


def recipe_schema() -> Schema:
    """Return the JSON schema of a recipe, draft 2020-12.

    It checks each value by itself, and the options by the architecture.
    """
    schema = Recipe.model_json_schema(schema_generator=_TomlSchema)
    schema["required"] = ["data"]  # a file has no pairs in memory
    properties = schema["properties"]
    for field in properties.values():
        del field["part"]
    options = {architecture: _options(architecture) for architecture in TRAINED}
    every_option = {name: rule for rules in options.values() for name, rule in rules.items()}
    every_option |= options[properties["architecture"]["default"]]
    settings = setting_rules()
    for rule in settings.values():
        if "minimumAboveZero" in rule:  # not a keyword of JSON schema
            limit = rule.pop("minimumAboveZero")
            rule["not"] = {"exclusiveMinimum": 0, "exclusiveMaximum": limit}
    for name, rules in (("options", every_option), ("search", settings)):
        properties[name] |= {"properties": rules, "additionalProperties": False}
    conditions = _conditions(options, every_option)
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema, **conditions}


class _TomlSchema(GenerateJsonSchema):
    """Schemas without null, which TOML does not have, and without titles, which repeat names."""

    def nullable_schema(self, schema: NullableSchema) -> Schema:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: WithDefaultSchema) -> Schema:
        json_schema = super().default_schema(schema)
        if json_schema.get("default", ...) is None:
            del json_schema["default"]
        return json_schema

    def tuple_schema(self, schema: TupleSchema) -> Schema:
        json_schema = super().tuple_schema(schema)
        if "prefixItems" in json_schema:  # Taplo ignores this keyword; all items have one type
            json_schema["items"] = json_schema.pop("prefixItems")[0]
        return json_schema

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _options(architecture: str) -> Schema:
    config: type[Record] = TRAINED[architecture]
    properties = config.model_json_schema(schema_generator=_TomlSchema)["properties"]
    for name in itertools.chain(*PRESETS.values()):
        properties.get(name, {}).pop("default", None)  # the default depends on the preset
    return {name: rule for name, rule in properties.items() if name not in DECIDED_OPTIONS}


def _conditions(options: dict[str, Schema], every_option: Schema) -> Schema:
    """Return conditions that refuse, for each architecture, the options that it does not have.

    Taplo completes no keys of a table whose conditions are a list, so they are nested.
    """
    conditions: Schema = {}
    for architecture, rules in options.items():
        different = {
            name: rules.get(name, False)
            for name, rule in every_option.items()
            if rules.get(name) != rule
        }
        if different:
            conditions = {
                "if": {
                    "properties": {"architecture": {"const": architecture}},
                    "required": ["architecture"],
                },
                "then": {"properties": {"options": {"properties": different}}},
                "else": conditions,
            }
    return conditions
