"""How each element of HTML is read: as a part of a sentence, unchanged, or as a block."""

from collections.abc import Mapping

INLINE_TAGS = set(
    "a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark nobr output q rb ruby "
    "s small span strike strong sub sup time tt u".split()
)
# Without text, inside a sentence.
VOID_INLINE_TAGS = {"embed", "img", "wbr", "input", "slot"}
# Unchanged elements inside a sentence that are read as a word.
WORD_TAGS = set("code kbd samp var math svg object iframe audio video canvas picture".split())
# Unchanged elements inside a sentence that have no part in it: the pronunciation of ruby text.
ANNOTATION_TAGS = {"rp", "rt", "rtc"}
# Unchanged blocks. Browsers read no character references in some of them.
UNTOUCHED_TAGS = set(
    "script style pre textarea template noscript listing noembed noframes plaintext xmp".split()
)
UNCHANGED_TAGS = WORD_TAGS | ANNOTATION_TAGS | UNTOUCHED_TAGS
SENTENCE_TAGS = INLINE_TAGS | VOID_INLINE_TAGS | WORD_TAGS | ANNOTATION_TAGS


def is_marked(attributes: Mapping[str, str]) -> bool:
    """Return whether the author excludes an element with these attributes from translation."""
    classes = attributes.get("class", "").split()
    return attributes.get("translate", "").lower() == "no" or "notranslate" in classes


def is_unchanged(name: str, attributes: Mapping[str, str]) -> bool:
    """Return whether an element and everything inside it stays unchanged."""
    return name in UNCHANGED_TAGS or is_marked(attributes)
