"""The HTML of pools and files in a notebook."""

from __future__ import annotations

import html.parser

import tidemill


class Checked(html.parser.HTMLParser):
    """Collects the text of HTML, and checks that every tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        """Remembers an open tag."""
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Checks that the innermost tag is closed."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collects text."""
        self.text.append(data)


def text_of(shown: str) -> str:
    """The text of well-formed HTML."""
    checked = Checked()
    checked.feed(shown)
    assert not checked.open
    return " ".join(checked.text)


def test_a_pool_shows_its_nodes_and_how_full_they_are(pool: tidemill.Pool) -> None:
    pool.put("data", bytes(5 << 20))
    shown = text_of(pool._repr_html_())
    assert shown.startswith(f"Tidemill pool {pool.file or 'in this process'}")
    for node in pool.nodes():
        assert f"node {node.id}" in shown
        assert f"of {node.capacity >> 20}.0 MiB" in shown
    assert repr(pool).startswith(f"<tidemill.Pool {pool.file or 'in this process'}, ")
    assert repr(pool).endswith("open>")


def test_a_closed_pool_shows_that(own_pool: tidemill.Pool) -> None:
    own_pool.close()
    assert "closed" in text_of(own_pool._repr_html_())


def test_a_file_shows_where_it_is_and_names_are_text(pool: tidemill.Pool) -> None:
    pool.put("a/<b>&", b"x" * 2048)
    with pool.open("a/<b>&", "rb", buffering=0) as file:
        assert isinstance(file, tidemill.PoolFile)
        file.seek(1000)
        shown = text_of(file._repr_html_())
        assert "<b>& path a/<b>& mode rb length 2.0 KiB position 1,000" in shown
    assert "closed" in text_of(file._repr_html_())
