"""Documents as people write them: a README, a post, pages, an issue, a newsletter."""

import pytest
from document_checks import translate
from hard_documents import unchanged
from real_documents import DOCUMENTS

from tfk_transformer.formats.registry import read


@pytest.mark.parametrize("name", DOCUMENTS)
def test_copied_documents_come_back(name):
    format, text = DOCUMENTS[name]
    assert translate(read(text, format), "en", unchanged).text == text


@pytest.mark.parametrize("name", DOCUMENTS)
def test_model_keeps_the_structure(translator, name):
    """The model of number words knows no word of these texts, and its attention is noise."""
    format, text = DOCUMENTS[name]
    translation = translator.translate_document(text, format, beam_size=1, max_length=8)
    structure = read(text, format).structure
    assert sorted(structure(translation.text)) == sorted(structure(text))
    assert any(sentence.target != sentence.source for sentence in translation.sentences)
