"""The keyword arguments of `translate` are the fields of `SearchSettings`."""

import dataclasses

from tfk_transformer.config.search_settings import SearchOptions, SearchSettings


def test_options_are_the_settings():
    fields = {field.name: field.type for field in dataclasses.fields(SearchSettings)}
    assert SearchOptions.__annotations__ == fields
    assert not SearchOptions.__required_keys__
