"""Check the language of a text."""

# ISO 639-1. The splitter has rules or related languages for them, and reads any other as English.
LANGUAGES = frozenset(
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy "
    "da de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu "
    "hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb "
    "lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om "
    "or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv "
    "sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu "
    # Without a code of two letters.
    "arz ast bar ceb ckb dsb fil fur gsw hsb hyw kab lmo mai nds pms sah scn szl vec wuu "
    "yue".split()
)


def language_code(language: str, argument: str = "language") -> str:
    """Return the code of a language without its script and region, such as "pt" for "pt-BR".

    Args:
        language: the ISO 639 code of the language.
        argument: its name, for the error.

    Raises:
        ValueError: if the code is unknown.
    """
    code = _without_region(language)
    if code not in LANGUAGES:
        raise ValueError(
            f"{argument}: expected an ISO 639 code of a language, got '{language}'; write a code "
            "such as en, de, ru or zh."
        )
    return code


def language_or_english(language: str | None) -> str:
    """Return the code of a language as `language_code` does, or "en" if it is unknown."""
    code = _without_region(language or "en")
    return code if code in LANGUAGES else "en"


def _without_region(language: str) -> str:
    return language.replace("_", "-").split("-")[0].lower()
