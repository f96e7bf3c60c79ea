"""HTML and SVG: elements with escaped text, tables, and a page in one file."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape

from cluster.printable import one_line
from cluster.report.palette import stylesheet

MARK = '<meta name="generator" content="hpc">'
"""An element in the head of every page, by which this program recognizes its own files."""
_EMPTY = frozenset({"meta", "br"})
_STYLE = """\
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:0 1.25rem 3rem;background:var(--page);color:var(--ink);
 font:1rem/1.5 system-ui,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
a{color:var(--link)}
a:focus-visible,[tabindex]:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-999rem}.skip:focus{position:static}
h1{font-size:1.75rem;margin:1.5rem 0 .25rem}
h2{font-size:1.3rem;margin:2.25rem 0 .5rem;padding-top:.5rem;border-top:1px solid var(--line)}
h3{font-size:1.05rem;margin:1.25rem 0 .25rem}
p{max-width:50rem;margin:.5rem 0}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1rem;list-style:none;padding:0;margin:.75rem 0}
.muted{color:var(--muted)}.good{color:var(--good)}.warning{color:var(--warning)}.bad{color:var(--bad)}
.good,.warning,.bad{font-weight:600}
.wide{overflow-x:auto;margin:.75rem 0}
table{border-collapse:collapse;font-size:.9em}
caption{text-align:left;font-weight:600;padding:.25rem 0;white-space:nowrap}
th,td{text-align:left;vertical-align:top;padding:.2rem .75rem .2rem .4rem;border-bottom:1px solid var(--grid);
 overflow-wrap:break-word}
thead th{background:var(--surface);border-bottom:1px solid var(--line);white-space:nowrap}
tbody th{font-weight:500}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
code{font:0.9em ui-monospace,"DejaVu Sans Mono",monospace;background:var(--surface);padding:.1rem .3rem;
 overflow-wrap:anywhere}
.finding{border-left:4px solid var(--bad);padding:.1rem 0 .1rem .75rem;margin:.75rem 0}
svg{display:block;max-width:100%;height:auto;margin:.75rem 0;font-size:13px}
svg text{fill:var(--ink)}svg .small{font-size:11px}svg .muted{fill:var(--muted)}
@media print{
 body{max-width:none;padding:0;font-size:10pt}
 nav,.skip{display:none}.wide{overflow:visible}
 h2,h3,caption{break-after:avoid}tr,svg,.finding{break-inside:avoid}
 *{-webkit-print-color-adjust:exact;print-color-adjust:exact}
}
@page{margin:15mm}
"""


class Html(str):
    """Markup. Any other text is escaped when it becomes part of markup."""

    __slots__ = ()


def text(value: object) -> Html:
    """Return a value as markup. Other values than markup are escaped, and invisible characters are written as codes."""
    return value if isinstance(value, Html) else Html(escape(one_line(str(value))))


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """Return an element. `class_` is the attribute class, `stroke_width` is stroke-width; attributes that are None are
    left out."""
    words = [
        f'{key.rstrip("_").replace("_", "-")}="{escape(one_line(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    start = f"<{' '.join([name, *words])}>"
    return Html(start if name in _EMPTY else f"{start}{join(*children)}</{name}>")


def join(*parts: object) -> Html:
    return Html("".join(map(text, parts)))


def paragraph(*parts: object, class_: str | None = None) -> Html:
    return element("p", *parts, class_=class_)


def table(caption: str, rows: Sequence[Sequence[object]], *, right: Collection[int] = ()) -> Html:
    """Return a table. The first row has the headings of columns, the first column those of rows; `right` are columns of
    numbers. A table that is too wide for the page can be scrolled, with the keyboard too."""

    def row(cells: Sequence[object], scope: str) -> Html:
        """Return a row; `scope` is that of its first cell, and of the others in the heading."""
        found: list[Html] = []
        for column, value in enumerate(cells):
            is_heading = not column or scope == "col"
            content = Html(text(value).replace(",", ",<wbr>"))  # a host list may be broken at its commas
            attributes = {"scope": scope if is_heading else None, "class_": "number" if column in right else None}
            found.append(element("th" if is_heading else "td", content, **attributes))
        return element("tr", *found)

    body = element("tbody", *(row(cells, "row") for cells in rows[1:]))
    content = element("table", element("caption", caption), element("thead", row(rows[0], "col")), body)
    return element("div", content, class_="wide", tabindex="0", role="group", aria_label=caption)


def figure(name: str, title: str, description: str, width: float, height: float, *parts: Html) -> Html:
    """Return an SVG with its title and description; `name` is unique on the page."""
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", description, id=f"{name}-desc"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-desc",
    )


@dataclass(frozen=True)
class Section:
    """A section of a page."""

    name: str
    """The anchor."""
    title: str
    blocks: Sequence[Html]


def page(title: str, lead: Sequence[Html], sections: Sequence[Section]) -> str:
    """Return a page in one file. It has no script, and its policy forbids the browser to load anything."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        Html(MARK),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        Html("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"),
        element("title", title),
        Html(f"<style>{stylesheet()}\n{_STYLE}</style>"),
    )
    links = [element("li", element("a", section.title, href=f"#{section.name}")) for section in sections]
    parts = [
        element(
            "section",
            element("h2", section.title, id=f"{section.name}-heading"),
            *section.blocks,
            id=section.name,
            aria_labelledby=f"{section.name}-heading",
        )
        for section in sections
    ]
    body = element(
        "body",
        element("a", "To the content", href="#content", class_="skip"),
        element("header", element("h1", title), *lead),
        element("nav", element("ul", *links), aria_label="Sections"),
        element("main", *parts, id="content"),
    )
    return f'<!doctype html>\n<html lang="en">\n{head}\n{body}\n</html>\n'
