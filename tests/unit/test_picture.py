"""What the README's picture shows: the last state of a terminal, and nothing to be fetched."""

from __future__ import annotations

from bench.picture import picture, seen


def test_of_a_live_table_the_last_state_is_seen_and_of_a_plain_one_all() -> None:
    assert seen("one\r\ntwo\r\n") == "one\ntwo"
    up_a_line = "\x1b[1A\x1b[2K"
    live = f"\x1b[?25lold 1\r\nold 2\r\x1b[2K{up_a_line}new 1\r\n\x1b[1mnew 2\x1b[0m\r\n\x1b[?25h"
    assert seen(live) == "new 1\n\x1b[1mnew 2\x1b[0m"
    assert seen("") == ""


def test_a_picture_is_the_same_each_time_and_fetches_nothing() -> None:
    drawn = picture("fairscribe queue", "\x1b[31mplace & file\x1b[0m")
    assert drawn == picture("fairscribe queue", "\x1b[31mplace & file\x1b[0m")
    assert "place&#160;&amp;&#160;file" in drawn
    assert not [word for word in ("@font-face", "href", "url(http", 'url("') if word in drawn]
