"""Codes of languages, and the two languages of a model."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Self, TypeGuard

from tfk_transformer.constants import LANGUAGE_PATTERN

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

# ISO 639-3: the codes of these languages in NLLB-200 and in newer models of OPUS-MT.
LONG_CODES = dict(
    pair.split(":")
    for pair in (
        "afr:af als:sq amh:am ara:ar arb:ar asm:as aze:az azj:az bel:be ben:bn bod:bo "
        "bos:bs bul:bg cat:ca ces:cs cym:cy dan:da deu:de ell:el eng:en epo:eo est:et "
        "eus:eu ewe:ee fao:fo fas:fa fij:fj fin:fi fra:fr gaz:om gla:gd gle:ga glg:gl "
        "grn:gn guj:gu hat:ht hau:ha heb:he hin:hi hrv:hr hun:hu hye:hy ibo:ig ind:id "
        "isl:is ita:it jav:jv jpn:ja kan:kn kat:ka kaz:kk khk:mn khm:km kin:rw kir:ky "
        "kmr:ku kor:ko lao:lo lav:lv lim:li lin:ln lit:lt ltz:lb lug:lg lvs:lv mal:ml "
        "mar:mr mkd:mk mlg:mg mlt:mt mon:mn mri:mi msa:ms mya:my nep:ne nld:nl nno:nn "
        "nob:nb nor:no npi:ne nya:ny oci:oc orm:om ory:or pan:pa pbt:ps pes:fa plt:mg "
        "pol:pl por:pt pus:ps quy:qu ron:ro run:rn rus:ru san:sa sin:si slk:sk slv:sl "
        "smo:sm sna:sn snd:sd som:so sot:st spa:es sqi:sq srd:sc srp:sr ssw:ss sun:su "
        "swa:sw swe:sv swh:sw tam:ta tat:tt tel:te tgk:tg tgl:tl tha:th tir:ti tsn:tn "
        "tso:ts tuk:tk tur:tr uig:ug ukr:uk urd:ur uzb:uz uzn:uz vie:vi wol:wo xho:xh "
        "ydd:yi yid:yi yor:yo zho:zh zsm:ms zul:zu"
    ).split()
)

# A language, and its script, region or both.
LANGUAGE_TAG = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z]{4})?([-_]([A-Za-z]{2}|[0-9]{3}))?")


class Languages(NamedTuple):
    """The codes of the languages between which a model translates. None: unknown."""

    source: str | None = None
    target: str | None = None

    def known(self) -> dict[str, str]:
        """Return the known languages by side, "source" or "target"."""
        return {side: code for side, code in self._asdict().items() if code is not None}

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Return the languages in the configuration of a model."""
        codes = [config.get(f"{side}_language") for side in cls._fields]
        # JSON values are not trusted: other values than codes are unknown.
        return cls(
            *[
                code if isinstance(code, str) and re.fullmatch(LANGUAGE_PATTERN, code) else None
                for code in codes
            ]
        )


def language_code(language: str, argument: str = "language") -> str:
    """Return an ISO 639 code without its script and region, such as "pt" for "pt-BR"."""
    code = short_code(language)
    if code not in LANGUAGES:
        raise ValueError(
            f"{argument}: expected an ISO 639 code of a language, got '{language}'; write a code "
            "such as en, de, ru or zh."
        )
    return code


def language_or_english(language: str | None) -> str:
    """Return the code of a language as `language_code` does, or "en" if it is unknown."""
    code = short_code(language or "en")
    return code if code in LANGUAGES else "en"


def is_language(code: object) -> TypeGuard[str]:
    """Return whether a value is the code of one language, such as "de", "pt_BR" or "deu_Latn"."""
    is_code = isinstance(code, str) and LANGUAGE_TAG.fullmatch(code)
    return bool(is_code) and short_code(str(code)) in LANGUAGES


def short_code(language: str) -> str:
    """Return a code without script and region, of two letters if the language has such a code."""
    code = language.replace("_", "-").split("-")[0].lower()
    return LONG_CODES.get(code, code)
