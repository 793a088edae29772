"""Documents that LibreOffice saves, and their cases; see make_office_cases.py."""

import base64
import io

from make_cases import case
from PIL import Image

SPACES = " ".join(
    f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{long}:1.0"'
    for short, long in [("office", "office"), ("text", "text"), ("style", "style"), ("fo", "xsl-fo-compatible"), ("table", "table"), ("draw", "drawing"), ("svg", "svg-compatible")]
) + ' xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:math="http://www.w3.org/1998/Math/MathML"'


def run_style(name, **properties):
    return style(name, "text", "text", properties)


def paragraph_style(name, inner="", **properties):
    return style(name, "paragraph", "paragraph", properties, inner)


def style(name, family, kind, properties, inner=""):
    """Names of properties carry their space as in fo_color."""
    given = " ".join(f'{key.replace("__", "-").replace("_", ":", 1)}="{value}"' for key, value in properties.items())
    return f'<style:style style:name="{name}" style:family="{family}"><style:{kind}-properties {given}>{inner}</style:{kind}-properties></style:style>'


def tabs(*stops):
    rows = "".join(f'<style:tab-stop style:position="{position}" style:type="{kind}"/>' for position, kind in stops)
    return f"<style:tab-stops>{rows}</style:tab-stops>"


# The styles that bodies below use.
STYLES = "".join(
    [
        run_style("sub", style_text__position="sub 58%"), run_style("super", style_text__position="super 58%"), run_style("strike", style_text__line__through__style="solid"), run_style("italic14", fo_font__style="italic", fo_font__size="14pt"), run_style("italic12", fo_font__style="italic", fo_font__size="12pt"),
        run_style("yellow", fo_background__color="#ffff00"), run_style("green", fo_background__color="#00ff00"), run_style("odd", fo_background__color="#abcdef"), run_style("red", fo_color="#ff0000"), run_style("blue", fo_color="#0000ff"), run_style("dark", fo_color="#ff0001"), run_style("bold", fo_font__weight="bold"),
        run_style("times", style_font__name="Times New Roman"), run_style("arial", style_font__name="Arial"),
        paragraph_style("centre", fo_text__align="center"), paragraph_style("both", fo_text__align="justify"), paragraph_style("double", fo_line__height="200%"), paragraph_style("half", fo_line__height="150%"), paragraph_style("single", fo_line__height="100%"), paragraph_style("exact", fo_line__height="0.8cm"), paragraph_style("least", style_line__height__at__least="0.8cm"),
        paragraph_style("break", fo_break__before="page"), paragraph_style("tab_right", tabs(("17cm", "right"))), paragraph_style("tab_near", tabs(("16.5cm", "right"))), paragraph_style("tab_left", tabs(("8cm", "left"))), paragraph_style("tab_two", tabs(("4cm", "left"), ("17cm", "right"))), paragraph_style("tab_centre", tabs(("8.5cm", "center"))),
    ]
)
FONTS = "".join(f"<style:font-face style:name=\"{name}\" svg:font-family=\"'{name}'\"/>" for name in ["Times New Roman", "Arial", "Liberation Serif"])


def p(text, style=None):
    return f'<text:p text:style-name="{style}">{text}</text:p>' if style else f"<text:p>{text}</text:p>"


def span(text, style):
    return f'<text:span text:style-name="{style}">{text}</text:span>'


def table(*rows, style=None, merged=False):
    made = ""
    for at, row in enumerate(rows):
        cells = [f'<table:table-cell office:value-type="string">{p(cell)}</table:table-cell>' for cell in row]
        if merged and at == 0:
            cells[:2] = [cells[0].replace("<table:table-cell", '<table:table-cell table:number-columns-spanned="2"'), "<table:covered-table-cell/>"]
        made += "<table:table-row>" + "".join(cells) + "</table:table-row>"
    return f'<table:table table:name="T"><table:table-column table:number-columns-repeated="{len(rows[0])}"/>{made}</table:table>'


def picture(color, size=(12, 9)):
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<draw:frame text:anchor-type="as-char" svg:width="1cm" svg:height="0.75cm"><draw:image><office:binary-data>{data}</office:binary-data></draw:image></draw:frame>'


EQUATION = (
    '<draw:frame text:anchor-type="as-char" svg:width="1.5cm" svg:height="0.6cm"><draw:object><math:math><math:semantics><math:mrow><math:mi>a</math:mi><math:mo>=</math:mo><math:mn>1</math:mn></math:mrow>'
    '<math:annotation encoding="StarMath 5.0">a=1</math:annotation></math:semantics></math:math></draw:object></draw:frame>'
)


def flat(office, name, body, footer=None, target="docx"):
    foot = f"<style:footer>{footer}</style:footer>" if footer else ""
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?><office:document {SPACES} office:version="1.3" office:mimetype="application/vnd.oasis.opendocument.text"><office:font-face-decls>{FONTS}</office:font-face-decls>'
        '<office:styles><style:default-style style:family="paragraph"><style:text-properties style:font-name="Liberation Serif" fo:font-size="12pt"/></style:default-style><style:style style:name="Standard" style:family="paragraph"/></office:styles>'
        f'<office:automatic-styles>{STYLES}<style:page-layout style:name="page"><style:page-layout-properties fo:page-width="21cm" fo:page-height="29.7cm" fo:margin="2cm"/><style:footer-style/></style:page-layout></office:automatic-styles>'
        f'<office:master-styles><style:master-page style:name="Standard" style:page-layout-name="page">{foot}</style:master-page></office:master-styles><office:body><office:text>{body}</office:text></office:body></office:document>'
    )
    return office.flat(f"d_{name}", "fodt", text, target)


def documents(office):
    words(office)
    layouts(office)
    tables(office)
    lists(office)
    opendocument(office)


TWO = ["compare_docx_lines", "compare_init_lines", "compare_docx_files_and_ignore_new_lines", "compare_subscript_contains", "evaluate_strike_through_last_paragraph", "check_italic_font_size_14", "compare_line_spacing", "compare_insert_equation", "compare_contains_image", "compare_docx_images", "compare_docx_tables"]


def words(office):
    second, last = "Water is H2O, first and last.", "The end"
    files = {
        "gold": p("A title") + p(second) + p(last), "turned": p(second) + p("A title") + p(last), "spaces": p("A <text:s text:c='3'/>title") + p(second) + p(last), "empty": p("A title") + p("") + p(second) + p("") + p(last),
        "sub": p("A title") + p("Water is H" + span("2", "sub") + "O, first and last.") + p(last), "super": p("A title") + p("Water is H" + span("2", "super") + "O, first and last.") + p(last), "strike": p("A title") + p(second) + p(span(last, "strike")), "half_strike": p("A title") + p(second) + p(span("The", "strike") + " end"), "italic": p(span("A title", "italic14")) + p(second) + p(last), "small_italic": p(span("A title", "italic12")) + p(second) + p(last),
        "bold": p(span("A title", "bold")) + p("Water " + span("is", "bold") + " H2O, first and last.") + p(last), "image": p("A title" + picture("red")) + p(second) + p(last), "other_image": p("A title" + picture("blue")) + p(second) + p(last), "image_later": p("A title") + p(second + picture("red")) + p(last), "equation": p("A title" + EQUATION) + p(second) + p(last), "line_break": p("A title") + p("Water is H2O,<text:line-break/>first and last.") + p(last), "linked": p('<text:a xlink:type="simple" xlink:href="https://a.com/">A title</text:a>') + p(second) + p(last), "heading": '<text:h text:outline-level="1">A title</text:h>' + p(second) + p(last), "noted": p('A title<text:note text:id="n" text:note-class="footnote"><text:note-citation>1</text:note-citation><text:note-body><text:p>why</text:p></text:note-body></text:note>') + p(second) + p(last),
    }
    files = {name: flat(office, name, body) for name, body in files.items()}
    options = [{}, {"ignore_blanks": False}, {"ignore_case": True}, {"ignore_order": True}, {"content_only": True}, {"fuzzy_match": True}, {"delete_empty_lines": True, "ignore_blanks": False}, {"fuzzy_match": True, "ignore_blanks": False}]
    for name, file in files.items():
        for option in options:
            case(name, "compare_docx_files", file, files["gold"], **option)
        for other in dict.fromkeys(["gold", "sub", "strike", "image", "equation", name]):
            for func in TWO:
                if other in ("gold", name) or func in ("compare_subscript_contains", "compare_insert_equation", "compare_contains_image", "compare_docx_images"):
                    case(f"{name} {other}", func, file, files[other])
        case(name, "is_first_line_centered", file)
        case(name, "contains_page_break", file, {})
        case(name, "has_page_numbers_in_footers", file)


def layouts(office):
    number = p('<text:page-number text:select-page="current">1</text:page-number>')
    first, body, last = "Introduction", "Body of it", "Conclusion"
    made = {
        "plain": p(first) + p(body) + p(last), "centre": p(first, "centre") + p(body) + p(last), "both": p(first, "both") + p(body) + p(last), "spaced": p(first, "single") + p(body, "double") + p(last, "half"), "doubled": p(first, "double") + p(body, "double") + p(last, "double"), "exact": p(first, "exact") + p(body, "exact") + p(last), "least": p(first, "least") + p(body) + p(last),
        "break": p(first) + p(body, "break") + p(last), "breaks": p(first) + p(body, "break") + p(last, "break"), "soft": p(first + "<text:soft-page-break/>") + p(body) + p(last), "times": "".join(p(span(text, "times")) for text in (first, body, last)), "arial": p(span(first, "times")) + p(span(body, "arial")) + p(span(last, "times")),
    }
    files = {name: flat(office, name, body) for name, body in made.items()}
    files["numbered"] = flat(office, "numbered", made["plain"], number)
    files["footed"] = flat(office, "footed", made["plain"], p("Chapter"))
    files["footed_digit"] = flat(office, "footed_digit", made["plain"], p("Version 2"))
    for name, file in files.items():
        for other in ["plain", "spaced", "doubled", "exact"]:
            case(f"{name} {other}", "compare_line_spacing", file, files[other])
        case(name, "is_first_line_centered", file)
        for count in [None, 1, 2]:
            case(name, "contains_page_break", file, {} if count is None else {"page_break_count": count})
        case(name, "has_page_numbers_in_footers", file)
        for font in ["Times New Roman", "Liberation Serif", "Arial"]:
            case(name, "compare_font_names", file, {"font_name": font})
    lines = lambda style, at=3: "".join(p(" ".join(words[:at]) + "<text:tab/>" + " ".join(words[at:]), style) for words in (["One", "two", "three", "four", "five"], ["Six", "seven", "eight", "nine"]))
    tabbed = {"right": lines("tab_right"), "near": lines("tab_near"), "left": lines("tab_left"), "two": lines("tab_two"), "centre": lines("tab_centre"), "none": lines(None), "words": lines("tab_right", 2), "more": lines("tab_right") + p("More")}
    files = {name: flat(office, f"tab_{name}", body) for name, body in tabbed.items()}
    for name, file in files.items():
        for other in ["right", "two", "none"]:
            for options in [{}, {"word_number_split_by_tabstop": 3, "index": 0}, {"word_number_split_by_tabstop": 1, "index": 1}]:
                case(f"{name} {other}", "check_tabstops", file, files[other], **options)


def tables(office):
    grid = [["Alpha", "beta"], ["Delta", "echo"]]
    vowels = lambda vowel, other: [[span(word, vowel if word[0].lower() in "aeiou" else other) for word in row] for row in grid]
    made = {
        "grid": table(*grid), "blanks": table(["Alpha ", " beta"], grid[1]), "other": table(["Alpha", "gamma"], grid[1]), "short": table(grid[0]), "merged": table(*grid, merged=True), "colored": table(*vowels("red", "blue")), "turned": table(*vowels("blue", "red")), "dark": table(*vowels("dark", "blue")), "two": table(*grid) + p("x") + table(*grid), "none": p("text"),
        "words": table([span("Alpha", "red") + " " + span("beta", "blue"), "x"], grid[1]),
    }
    files = {name: flat(office, f"t_{name}", body) for name, body in made.items()}
    for name, file in files.items():
        for other in dict.fromkeys(["grid", "colored", "merged", name]):
            case(f"{name} {other}", "compare_docx_tables", file, files[other])
            for option in [{}, {"examine_table_alignment": True}]:
                case(f"{name} {other}", "evaluate_colored_words_in_tables", file, files[other], **option)
        case(name, "evaluate_colored_words_in_tables", file, files["grid"], words_threshold=1.5)
        case(name, "compare_docx_files", file, files["grid"])


def lists(office):
    item = lambda text: f"<text:list-item>{p(text)}</text:list-item>"
    trains = ["08:00:00, T1, S1, 1", "08:10:00, T2, S1, 2", "08:20:00, T1, S2, 1", "08:30:00, T3, S2, 1"]
    references = p("Text") + p("References") + p("[1] A. Author. A book. 2020.") + p("[2] B. Bauer. A paper. 2021.")
    made = {
        "list": p("Items") + "<text:list>" + item("one") + item("two") + "</text:list>", "plain": p("Items") + p("one") + p("two"), "nested": p("Items") + "<text:list><text:list-item>" + p("one") + "<text:list>" + item("two") + "</text:list></text:list-item></text:list>", "marked": p("one " + span("two", "yellow")), "odd": p("one " + span("two", "odd")), "unmarked": p("one two"),
        "trains": "".join(map(p, trains)), "unique": p(trains[0]) + p(trains[1]) + p(trains[3]), "later": p(trains[1]) + p(trains[2]) + p(trains[3]), "references": references, "reference_typo": references.replace("book", "bok"), "reference_other": references.replace("A. Author. A book. 2020.", "Nothing like it at all"), "no_references": p("Text"), "one_reference": references.rsplit("<text:p>", 1)[0],
    }
    files = {name: flat(office, f"l_{name}", body) for name, body in made.items()}
    for name in files:
        for other in dict.fromkeys(["list", "plain", name]):
            for func in TWO[:3] + ["compare_docx_files"]:
                case(f"{name} {other}", func, files[name], files[other])
        case(name, "compare_unique_train_records", files[name], [files["unique"], files["trains"]])
        for options in [{}, {"reference_base_result": 0.92}, {"reference_indicator": "Text"}]:
            case(name, "compare_references", files[name], files["references"], **options)


def opendocument(office):
    """Saved as odt, which two metrics read."""
    made = {
        "gold": p("One two three") + p("Four"), "marked": p("One " + span("two", "yellow") + " three") + p("Four"), "bold": p("One " + span("two", "bold") + " three") + p("Four"), "other": p("One two") + p("Four"), "spaces": p("One  <text:s text:c='2'/>two three") + p("Four"), "heading": '<text:h text:outline-level="1">One two three</text:h>' + p("Four"),
    }
    files = {name: flat(office, f"o_{name}", body, target="odt") for name, body in made.items()}
    for name, file in files.items():
        for other in dict.fromkeys(["gold", "marked", name]):
            case(f"{name} {other}", "check_highlighted_words", file, files[other])
            for option in [{}, {"ignore_blanks": False}, {"ignore_order": True}, {"fuzzy_match": True}]:
                case(f"{name} {other}", "compare_docx_files", file, files[other], **option)
