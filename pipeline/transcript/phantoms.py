"""Phrases Whisper makes up where nobody speaks: what subtitles end with, in many languages.

From reports (speaches #133, speakr #178, voquill #446, vexa #617) and from what the packaged models
say to the sounds of `python -m bench.noise`. Only the last net: `doubts.py` looks at them when
nothing else speaks against a window.
"""

from __future__ import annotations

import re

from pipeline.transcript.letters import bare

CREDITS = re.compile(
    "|".join(
        (
            r"\bamara\s?org\b|\bnicolai\s?winther\b|\bdotsub\b|\bopensubtitles\b|\bdimatorzok\b",
            # English
            r"^(?:subtitl(?:es|ed|ing)|caption(?:s|ed|ing))(?: and \w+)? by\b",
            r"^(?:transcri(?:pt|ption|bed)|translat(?:ed|ion)) by\b",
            r"^(?:thanks|thank you)(?: so much| all)? for watching(?: (?:this|the|my|our) video)?$",
            r"\bsubscribe to (?:my|our|the) channel\b",
            r"\bsee you (?:guys )?in the next (?:video|one)$",
            # German
            r"^untertitel(?:ung)?\b.*\b(?:zdf|ard|[wnm]dr|swr|br|hr|funk|amara|von|20\d\d)\b",
            r"^(?:ard|zdf|[wnm]dr|swr|br|hr)(?: \w+)? (?:19|20)\d\d$|^vielen dank fürs zuschauen$",
            # French, Italian, Spanish, Portuguese, Romanian
            r"^sous titr\w+ (?:par|réalisé|fait|société|st)\b|^merci d avoir regardé\b",
            r"^sottotitoli\b.*\b(?:cura di|creati|qtss|revisione)\b|^grazie per la visione$",
            r"^subtítulos\b.*\b(?:por|comunidad)\b|^gracias por ver\b|^suscríbete al canal$",
            r"^legendas?\b.*\b(?:pela|por|comunidade)\b|^obrigad[oa] por assistir\b",
            r"^subtitrarea?\b.*\b(?:realizat|adaptarea)\w*|^vă mulțumim pentru vizionare\b",
            # Dutch, Danish, Norwegian, Swedish, Finnish
            r"^ondertitel\w*\b.*\b(?:door|ingediend|bedrijf)\b|^bedankt voor het kijken\b",
            r"^(?:under)?tekst(?:et|er|ing)? (?:av|af)\b|^danske tekster\b|^norske? tekst\w*\b",
            r"^svensktextning\b|^undertexter(?:na)? (?:av|från)\b|^suomennos\b|^tekstitys\b",
            # Polish, Czech, Hungarian, Greek, Turkish
            r"^napisy (?:stworzone|przez|tekst)\b|^dziękuję za (?:obejrzenie|oglądanie)\b",
            r"^titulky (?:vytvořil|od|přeložil)\b|^feliratok?\b.*\b(?:készít|www)\w*",
            r"^υπότιτλοι\b",
            r"^altyazı\b|\bsesli betimleme\b|^abone ol",
            r"^bu videoyu (?:izlediğiniz için|beğenmeyi)\b",
            # Russian, Ukrainian, Arabic
            r"^(?:редактор |корректор )?субтитр\w*\b|\b(?:сделал|создавал)и? субтитр\w*\b",
            r"^спасибо за просмотр\b|^продолжение следует$|^дякую за перегляд\b",
            r"^ترجمة (?:نانسي|و)\b|^اشتركوا في القناة",
            # Chinese, Japanese, Korean
            r"^(?:中文)?字幕|(?:請|请)不吝(?:點贊|点赞)|^明[鏡镜].*(?:欄目|栏目)$",
            r"^(?:謝謝|谢谢)(?:大家)?(?:觀看|观看|收看)",
            r"^ご視聴(?:ありがとう|いただき)|チャンネル登録|^次の動画でお会い",
            r"^(?:mbc|kbs|sbs|ytn) ?뉴스|^자막 ?(?:제공|제작)|^한글자막|시청해 ?주셔서 ?감사",
        )
    )
)
"""In `bare` text. Nobody says these in a call; each is a credit or the farewell of a video."""

COURTESIES = {
    *(
        "you",
        "thank you",
        "thank you very much",
        "thanks",
        "bye",
        "bye bye",
        "okay",
        "ok",
        "so",
        "oh",
    ),
    *("uh", "hmm", "yeah", "yes", "the", "i", "danke", "vielen dank", "tschüss", "ja", "merci"),
    *("gracias", "grazie", "obrigado", "obrigada", "спасибо", "пока", "dziękuję", "teşekkürler"),
    *(
        "teşekkür ederim",
        "ありがとうございました",
        "おはようございます",
        "お疲れ様でした",
        "はい",
        "ん",
    ),
    *(
        "감사합니다",
        "네",
        "谢谢",
        "謝謝",
        "شكرا",
        "tak",
        "takk",
        "tack",
        "bedankt",
        "kiitos",
        "děkuji",
    ),
    *("köszönöm", "ευχαριστώ"),
}
"""What Whisper says to silence and people say all day: never a sign by itself."""

_NOTE = re.compile(r"[\[(（【<*♪♫🎵🎶][^\])）】>*♪♫🎵🎶]*[\])）】>*♪♫🎵🎶]?")


def is_credit(text: str) -> bool:
    """Whether a text is a credit of subtitles or the farewell of a video, and short enough to be
    nothing else.

    >>> is_credit("Untertitel im Auftrag des ZDF für funk, 2017"), is_credit("Thank you.")
    (True, False)
    """
    plain = bare(text)
    return len(plain) <= CREDIT_LENGTH and CREDITS.search(plain) is not None


CREDIT_LENGTH = 120
"""Signs; a longer text has something else to say."""


def is_phantom(text: str) -> bool:
    """Whether a text is nothing but what Whisper says to silence: a credit, or a courtesy that is
    said in calls, too.
    """
    return bare(text) in COURTESIES or is_credit(text)


def only_notes(text: str) -> bool:
    """Whether a text only describes a sound.

    >>> only_notes("[BLANK_AUDIO]"), only_notes("(wind howling) ♪"), only_notes("Room (2) please")
    (True, True, False)
    """
    return not bare(_NOTE.sub(" ", text))
