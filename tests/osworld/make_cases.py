"""Makes the golden cases of crates/arpo-osworld: small files, and what OSWorld's own evaluators score them.

Usage: python make_cases.py OUT OLD NEW
OLD and NEW are folders with the unpacked wheels desktop-env 0.1.22 (near to what ARPO used) and 1.0.2 (Verified).
Made with Python 3.11, numpy 1.26.4, pandas 2.2.3, openpyxl 3.1.5, python-docx 1.1.2, python-pptx 1.0.2,
pillow 11.0.0, scikit-image 0.24.0, rapidfuzz 3.14.6, lxml, xmltodict, odfpy, pypdf 5.1.0, PyMuPDF, tldextract,
formulas, librosa 0.10.2, fastdtw, beautifulsoup4, pdfplumber. Packages that need models or system libraries are
replaced by empty ones: the functions that use them are not run here.
"""

import copy
import importlib
import json
import sqlite3
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import openpyxl
from openpyxl.chart import BarChart, LineChart, Reference
from openpyxl.styles import Font, PatternFill
from PIL import Image

OUT, OLD, NEW = (Path(argument).resolve() for argument in sys.argv[1:4])
FILES = OUT / "files"
CASES = []
# What 0.1.22 does not have, or has in a form older than ARPO's.
ONLY_NEW = {"match_in_list", "compare_images", "contains_page_break", "is_expected_active_tab_approximate"}


def case(name, func, result, expected=None, **options):
    CASES.append({"id": name, "func": func, "result": result, "expected": expected, "options": options})


def put(name, content):
    path = FILES / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return {"file": f"files/{name}"}


def archive(name, parts):
    with zipfile.ZipFile(FILES / name, "w", zipfile.ZIP_DEFLATED) as out:
        for part, content in parts.items():
            info = zipfile.ZipInfo(part, (2020, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(info, content)
    return {"file": f"files/{name}"}


ABSENT = {"file": "files/absent"}
XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
RELS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"


def relations(*entries):
    rows = "".join(f'<Relationship Id="{i}" Type="{OFFICE}/{kind}" Target="{to}"/>' for i, kind, to in entries)
    return f'{XML}<Relationships xmlns="{RELS}">{rows}</Relationships>'


def content_types(**overrides):
    rows = "".join(
        f'<Override PartName="{part}" ContentType="application/vnd.openxmlformats-officedocument.{kind}+xml"/>'
        for part, kind in overrides.items()
    )
    return (
        f'{XML}<Types xmlns="{TYPES}"><Default Extension="xml" ContentType="application/xml"/><Default Extension="rels" '
        f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>{rows}</Types>'
    )


def docx(name, body):
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    return archive(
        name,
        {
            "[Content_Types].xml": content_types(**{"/word/document.xml": "wordprocessingml.document.main"}),
            "_rels/.rels": relations(("rId1", "officeDocument", "word/document.xml")),
            "word/document.xml": f"{XML}<w:document {space}><w:body>{body}<w:sectPr/></w:body></w:document>",
        },
    )


def para(text, run="", own=""):
    return f"<w:p><w:pPr>{own}</w:pPr><w:r><w:rPr>{run}</w:rPr><w:t xml:space=\"preserve\">{text}</w:t></w:r></w:p>"


def odt(name, body, styles=""):
    spaces = " ".join(
        f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{long}:1.0"'
        for short, long in [("office", "office"), ("text", "text"), ("style", "style"), ("fo", "xsl-fo-compatible")]
    )
    manifest = 'xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"'
    kind = "application/vnd.oasis.opendocument.text"
    return archive(
        name,
        {
            "mimetype": kind,
            "META-INF/manifest.xml": f'{XML}<manifest:manifest {manifest}><manifest:file-entry manifest:full-path="/" '
            f'manifest:media-type="{kind}"/><manifest:file-entry manifest:full-path="content.xml" '
            'manifest:media-type="text/xml"/></manifest:manifest>',
            "content.xml": f"{XML}<office:document-content {spaces}><office:automatic-styles>{styles}"
            f"</office:automatic-styles><office:body><office:text>{body}</office:text></office:body>"
            "</office:document-content>",
        },
    )


def pptx(name, *slides, size=(9144000, 6858000)):
    a = "http://schemas.openxmlformats.org/drawingml/2006/main"
    p = "http://schemas.openxmlformats.org/presentationml/2006/main"
    spaces = f'xmlns:a="{a}" xmlns:p="{p}" xmlns:r="{OFFICE}"'
    head = '<p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>'
    master_shape = (
        '<p:sp><p:nvSpPr><p:cNvPr id="2" name="t"/><p:cNvSpPr/><p:nvPr><p:ph type="title"/></p:nvPr></p:nvSpPr><p:spPr>'
        '<a:xfrm><a:off x="10" y="20"/><a:ext cx="300" cy="400"/></a:xfrm></p:spPr><p:txBody><a:bodyPr/><a:p/></p:txBody></p:sp>'
    )
    bg = '<p:bg><p:bgPr><a:solidFill><a:srgbClr val="FFFFFF"/></a:solidFill><a:effectLst/></p:bgPr></p:bg>'
    ids = "".join(f'<p:sldId id="{256 + i}" r:id="rId{10 + i}"/>' for i in range(len(slides)))
    parts = {
        "_rels/.rels": relations(("rId1", "officeDocument", "ppt/presentation.xml")),
        "ppt/presentation.xml": f'{XML}<p:presentation {spaces}><p:sldMasterIdLst><p:sldMasterId id="2147483648" '
        f'r:id="rId1"/></p:sldMasterIdLst><p:sldIdLst>{ids}</p:sldIdLst><p:sldSz cx="{size[0]}" cy="{size[1]}"/>'
        '<p:notesSz cx="6858000" cy="9144000"/></p:presentation>',
        "ppt/_rels/presentation.xml.rels": relations(
            ("rId1", "slideMaster", "slideMasters/slideMaster1.xml"),
            *[(f"rId{10 + i}", "slide", f"slides/slide{i + 1}.xml") for i in range(len(slides))],
        ),
        "ppt/slideMasters/slideMaster1.xml": f"{XML}<p:sldMaster {spaces}><p:cSld>{bg}<p:spTree>{head}{master_shape}"
        "</p:spTree></p:cSld></p:sldMaster>",
        "ppt/slideMasters/_rels/slideMaster1.xml.rels": relations(("rId1", "slideLayout", "../slideLayouts/slideLayout1.xml")),
        "ppt/slideLayouts/slideLayout1.xml": f"{XML}<p:sldLayout {spaces}><p:cSld><p:spTree>{head}"
        + master_shape.replace('<a:xfrm><a:off x="10" y="20"/><a:ext cx="300" cy="400"/></a:xfrm>', "")
        + "</p:spTree></p:cSld></p:sldLayout>",
        "ppt/slideLayouts/_rels/slideLayout1.xml.rels": relations(("rId1", "slideMaster", "../slideMasters/slideMaster1.xml")),
    }
    kinds = {
        "/ppt/presentation.xml": "presentationml.presentation.main",
        "/ppt/slideMasters/slideMaster1.xml": "presentationml.slideMaster",
        "/ppt/slideLayouts/slideLayout1.xml": "presentationml.slideLayout",
    }
    for i, (shapes, extra) in enumerate(slides):
        parts[f"ppt/slides/slide{i + 1}.xml"] = (
            f"{XML}<p:sld {spaces}><p:cSld>{extra.get('bg', '')}<p:spTree>{head}{shapes}</p:spTree></p:cSld>"
            f"{extra.get('transition', '')}</p:sld>"
        )
        parts[f"ppt/slides/_rels/slide{i + 1}.xml.rels"] = relations(("rId1", "slideLayout", "../slideLayouts/slideLayout1.xml"))
        kinds[f"/ppt/slides/slide{i + 1}.xml"] = "presentationml.slide"
    parts["[Content_Types].xml"] = content_types(**kinds)
    return archive(name, parts)


def box(text, x=100000, run="", own="", body=None):
    inner = body or f"<a:p><a:pPr {own}/><a:r><a:rPr lang=\"en\" {run}/><a:t>{text}</a:t></a:r></a:p>"
    return (
        '<p:sp><p:nvSpPr><p:cNvPr id="4" name="b"/><p:cNvSpPr txBox="1"/><p:nvPr/></p:nvSpPr><p:spPr><a:xfrm>'
        f'<a:off x="{x}" y="100000"/><a:ext cx="200000" cy="200000"/></a:xfrm><a:prstGeom prst="rect"/></p:spPr>'
        f"<p:txBody><a:bodyPr/>{inner}</p:txBody></p:sp>"
    )


TITLE = (
    '<p:sp><p:nvSpPr><p:cNvPr id="5" name="t"/><p:cNvSpPr/><p:nvPr><p:ph type="title"/></p:nvPr></p:nvSpPr><p:spPr/>'
    "<p:txBody><a:bodyPr/><a:p><a:r><a:t>T</a:t></a:r></a:p></p:txBody></p:sp>"
)


def book(name, rows, change=None, sheets=("Sheet1",)):
    made = openpyxl.Workbook()
    made.active.title = sheets[0]
    for other in sheets[1:]:
        made.create_sheet(other)
    for row in rows:
        made.active.append(row)
    if change:
        change(made)
    made.save(FILES / name)
    return {"file": f"files/{name}"}


def tables():
    import datetime

    day = datetime.datetime(2024, 5, 1)
    rows = [["a", "b", "c"], [1, 2.5, "x"], [2, 3.123456, "y"]]
    same = [{"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0"}]
    gold = book("gold.xlsx", rows)
    made = {
        "same": rows,
        "rounded": [rows[0], rows[1], [2, 3.12345601, "y"]],
        "near": [rows[0], rows[1], [2, 3.1239, "y"]],
        "text_number": [rows[0], ["1", 2.5, "x"], ["2", 3.123456, "y"]],
        "real_number": [rows[0], [1.5, 2.5, "x"], [2, 3.123456, "y"]],
        "header": [["a", "b", "d"], *rows[1:]],
        "more": [*rows, [3, 4, "z"]],
        "case": [rows[0], [1, 2.5, "X"], rows[2]],
        "mixed": [rows[0], [1, 2.5, "x"], [2, 3.123456, 7]],
    }
    for name, content in made.items():
        case(f"table {name}", "compare_table", book(f"t_{name}.xlsx", content), gold, rules=same)
    odd = book("odd_gold.xlsx", [["a", "a", None, 1], [day, "NA", "TRUE", 1], [day, "n/a", "false", None]])
    odd_same = book("odd_same.xlsx", [["a", "a", None, 1], [day, None, True, 1], [day, None, False, None]])
    odd_time = book("odd_time.xlsx", [["a", "a", None, 1], [day, None, True, 1], [datetime.time(3), None, False, None]])
    case("table odd", "compare_table", odd_same, odd, rules=same)
    case("table odd time", "compare_table", odd_time, odd, rules=same)
    case("table damaged", "compare_table", put("cut.xlsx", (FILES / "gold.xlsx").read_bytes()[:900]), gold, rules=same)
    case("table absent", "compare_table", ABSENT, gold, rules=same)
    case("table none", "compare_table", None, gold, rules=same)
    case("table no sheet", "compare_table", gold, gold, rules=[{"type": "sheet_data", "sheet_idx0": "RNno", "sheet_idx1": "EI0"}])
    case("table no expected sheet", "compare_table", gold, gold, rules=[{"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "ENno"}])

    def look(made):
        sheet = made.active
        sheet["A1"].font = Font(bold=True, color="FFFF0000")
        sheet["A2"].fill = PatternFill("solid", fgColor="FF00FF00")
        sheet.merge_cells("B1:C1")
        sheet.freeze_panes = "B2"
        sheet.sheet_view.zoomScale = 60
        sheet.row_dimensions[3].hidden = True

    styled = book("styled.xlsx", rows, look)
    for name, place, props in [
        ("value", "B3", {"value": {"method": "approx:0.001", "ref": 3.1234}}),
        ("value far", "B3", {"value": {"method": "approx:0.0001", "ref": 3.2}}),
        ("text", "C2", {"value": {"method": "eq", "ref": "x"}}),
        ("number is real", "A2", {"value": {"method": "eq", "ref": 1}}),
        ("empty", "Z9", {"value": {"method": "approx:0.1", "ref": 0}}),
        ("bold", "A1", {"font_bold": {"method": "eq", "ref": True}}),
        ("red", "A1", {"font_color": {"method": "eq", "ref": "FFFF0000"}}),
        ("bgcolor", "A2", {"bgcolor": {"method": "eq", "ref": "FF00FF00"}}),
        ("merged", "C1", {"merge": {"method": "eq", "ref": True}}),
        ("not merged", "B1", {"merge": {"method": "eq", "ref": False}}),
    ]:
        rule = {"type": "check_cell", "sheet_idx": 0, "coordinate": place, "props": props}
        case(f"table cell {name}", "compare_table", styled, rules=[rule])
    plain = book("plain.xlsx", rows)
    case("table zoom", "compare_table", styled, rules=[{"type": "zoom", "sheet_idx": 0, "method": "lt", "ref": 100}])
    case("table zoom not", "compare_table", plain, rules=[{"type": "zoom", "sheet_idx": 0, "method": "lt", "ref": 100}])
    pair = {"sheet_idx0": 0, "sheet_idx1": "EI0"}
    for name, other in [("same", styled), ("other", plain)]:
        case(f"table freeze {name}", "compare_table", styled, other, rules=[{"type": "freeze", **pair}])
        case(f"table rows {name}", "compare_table", styled, other, rules=[{"type": "row_props", "props": ["hidden"], **pair}])
        case(f"table style {name}", "compare_table", styled, other, rules=[{"type": "style", "props": ["fill_type", "bgcolor"], **pair}])
    def chart(kind, title, column):
        def add(made):
            drawn = kind()
            drawn.title = title
            drawn.add_data(Reference(made.active, min_col=column, min_row=1, max_row=3), titles_from_data=True)
            drawn.set_categories(Reference(made.active, min_col=1, min_row=2, max_row=3))
            made.active.add_chart(drawn, "E2")

        return add

    drawn = book("chart.xlsx", rows, chart(BarChart, "Sales", 2))
    others = {"same": (BarChart, "Sales", 2), "title": (BarChart, "Sale", 2), "kind": (LineChart, "Sales", 2), "column": (BarChart, "Sales", 1)}
    for name, parts in others.items():
        other = book(f"chart_{name}.xlsx", rows, chart(*parts))
        for props in [["type"], ["title"], ["type", "title", "legend", "xtitle"], ["direction"]]:
            case(f"table chart {name} {props}", "compare_table", other, drawn, rules=[{"type": "chart", "chart_props": props, **pair}])
    case("table chart none", "compare_table", plain, drawn, rules=[{"type": "chart", "chart_props": ["type"], **pair}])

    # openpyxl cannot make a pivot table, only keep one: its parts are written by hand into a workbook.
    def pivot(name, subtotal="sum", hidden=0, fields=(0,)):
        base = zipfile.ZipFile(FILES / "gold.xlsx")
        parts = {part: base.read(part).decode() for part in base.namelist()}
        space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="' + OFFICE + '"'
        items = f'<items count="3"><item h="{hidden}" x="0"/><item x="1"/><item t="default"/></items>'
        columns = "".join(f'<pivotField axis="axisRow" showAll="0">{items}</pivotField>' if i in fields else '<pivotField dataField="1" showAll="0"/>' for i in range(3))
        rows = "".join(f'<field x="{i}"/>' for i in fields)
        kinds = {"/xl/pivotTables/pivotTable1.xml": "pivotTable", "/xl/pivotCache/pivotCacheDefinition1.xml": "pivotCacheDefinition"}
        extra = "".join(f'<Override PartName="{part}" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.{kind}+xml"/>' for part, kind in kinds.items())
        parts["[Content_Types].xml"] = parts["[Content_Types].xml"].replace("</Types>", extra + "</Types>")
        link = f'<Relationship Id="rIdP" Type="{OFFICE}/pivotCacheDefinition" Target="/xl/pivotCache/pivotCacheDefinition1.xml"/>'
        parts["xl/_rels/workbook.xml.rels"] = parts["xl/_rels/workbook.xml.rels"].replace("</Relationships>", link + "</Relationships>")
        caches = f'<pivotCaches><pivotCache xmlns:r="{OFFICE}" cacheId="1" r:id="rIdP"/></pivotCaches>'
        parts["xl/workbook.xml"] = parts["xl/workbook.xml"].replace("</workbook>", caches + "</workbook>")
        parts["xl/worksheets/_rels/sheet1.xml.rels"] = relations(("rId1", "pivotTable", "../pivotTables/pivotTable1.xml"))
        parts["xl/pivotTables/_rels/pivotTable1.xml.rels"] = relations(("rId1", "pivotCacheDefinition", "../pivotCache/pivotCacheDefinition1.xml"))
        parts["xl/pivotTables/pivotTable1.xml"] = (
            f'{XML}<pivotTableDefinition {space} name="P" cacheId="1" dataCaption="V"><location ref="E1:F4" firstHeaderRow="1" firstDataRow="1" firstDataCol="1"/>'
            f'<pivotFields count="3">{columns}</pivotFields><rowFields count="{len(fields)}">{rows}</rowFields>'
            f'<dataFields count="1"><dataField name="D" fld="1" subtotal="{subtotal}"/></dataFields></pivotTableDefinition>'
        )
        cached = "".join(f'<cacheField name="{n}" numFmtId="0"><sharedItems/></cacheField>' for n in "abc")
        parts["xl/pivotCache/pivotCacheDefinition1.xml"] = (
            f'{XML}<pivotCacheDefinition {space} recordCount="0"><cacheSource type="worksheet"><worksheetSource ref="A1:C3" sheet="Sheet1"/></cacheSource>'
            f'<cacheFields count="3">{cached}</cacheFields></pivotCacheDefinition>'
        )
        return archive(name, parts)

    gold_pivot = pivot("pivot.xlsx")
    props = ["col_fields", "filter", "row_fields", "data_fields"]
    for name, parts in {"same": {}, "count": {"subtotal": "count"}, "hidden": {"hidden": 1}, "field": {"fields": (2,)}}.items():
        case(f"table pivot {name}", "compare_table", pivot(f"pivot_{name}.xlsx", **parts), gold_pivot, rules=[{"type": "pivot_table", "pivot_props": props, **pair}])
    case("table pivot none", "compare_table", plain, gold_pivot, rules=[{"type": "pivot_table", "pivot_props": props, **pair}])
    two = book("two.xlsx", rows, sheets=("Sheet1", "Other"))
    case("table names", "compare_table", two, two, rules=[{"type": "sheet_name"}])
    case("table names differ", "compare_table", gold, two, rules=[{"type": "sheet_name"}])
    fuzzy = {"type": "sheet_fuzzy", **pair}
    for name, rule in [
        ("exact", {"range": ["A1:C2"], "type": "exact_match"}),
        ("case", {"range": ["C2"], "type": "exact_match"}),
        ("ignore case", {"range": ["C2"], "type": "exact_match", "ignore_case": True}),
        ("like", {"range": ["C2:C3"], "type": "fuzzy_match", "threshold": 10}),
    ]:
        other = {"file": "files/t_case.xlsx"}
        case(f"table fuzzy {name}", "compare_table", other, gold, rules=[{**fuzzy, "rules": [rule]}])
    put("gold-Sheet1.csv", "a,b\n1,2.50\n\n")
    put("t_same-Sheet1.csv", "a,b \n1,2.50")
    put("t_near-Sheet1.csv", "a,b\n1,2.5\n")
    for name in ["same", "near", "case"]:
        rules = [{"type": "sheet_print", "sheet_idx0": "RNSheet1", "sheet_idx1": "ENSheet1"}]
        case(f"table print {name}", "compare_table", {"file": f"files/t_{name}.xlsx"}, gold, rules=rules)


def documents():
    gold = docx("gold.docx", para("First  line") + para("Second", '<w:vertAlign w:val="subscript"/>') + para("Third"))
    made = {
        "same": para("First line") + para("Second") + para("Third "),
        "case": para("first line") + para("Second") + para("Third"),
        "order": para("Second") + para("First  line") + para("Third"),
        "near": para("First line") + para("Second") + para("Thirds"),
        "empty_lines": para("First  line") + para("") + para("Second") + para("Third"),
        "subscript": para("a") + para("b", '<w:vertAlign w:val="subscript"/>'),
        "superscript": para("a") + para("b", '<w:vertAlign w:val="superscript"/>'),
        "strike": para("First line") + para("Second") + para("Third", "<w:strike/>"),
        "strike_off": para("First line") + para("Second") + para("Third", '<w:strike w:val="0"/>'),
        "link": para("First line") + para("Second") + "<w:p><w:hyperlink><w:r><w:t>Third</w:t></w:r></w:hyperlink></w:p>",
    }
    options = [{}, {"ignore_blanks": False}, {"ignore_case": True}, {"ignore_order": True}, {"content_only": True}, {"fuzzy_match": True}, {"delete_empty_lines": True, "ignore_blanks": False}]
    for name, body in made.items():
        file = docx(f"d_{name}.docx", body)
        for option in options:
            case(f"docx {name} {option}", "compare_docx_files", file, gold, **option)
        for func in ["compare_subscript_contains", "evaluate_strike_through_last_paragraph", "compare_line_spacing", "compare_docx_lines", "compare_init_lines", "compare_docx_files_and_ignore_new_lines", "check_italic_font_size_14", "compare_contains_image"]:
            case(f"{func} {name}", func, file, gold)
    for func in ["compare_contains_image", "compare_init_lines"]:
        case(f"{func} gold", func, gold, gold)
        case(f"{func} none", func, None, gold)
    spaced = docx("spaced.docx", para("a", own='<w:spacing w:line="480" w:lineRule="auto"/>'))
    exact = docx("exact.docx", para("a", own='<w:spacing w:line="480" w:lineRule="exact"/>'))
    single = docx("single.docx", para("a", own='<w:spacing w:line="240"/>'))
    for name, file in [("same", spaced), ("exact", exact), ("single", single)]:
        case(f"spacing {name}", "compare_line_spacing", file, spaced)
    fonts = '<w:rFonts w:ascii="Times New Roman"/>'
    rule = {"font_name": "Times New Roman"}
    case("font all", "compare_font_names", docx("font.docx", para("a", fonts) + para("b", fonts)), rule)
    case("font some", "compare_font_names", docx("font2.docx", para("a", fonts) + para("b")), rule)
    case("centred", "is_first_line_centered", docx("centre.docx", para("a", own='<w:jc w:val="center"/>')))
    case("not centred", "is_first_line_centered", docx("left.docx", para("a", own='<w:jc w:val="left"/>')))
    case("no paragraph", "is_first_line_centered", docx("none.docx", ""))
    broken = '<w:p><w:r><w:br w:type="page"/></w:r></w:p>'
    breaks = docx("breaks.docx", broken + para("a") + broken)
    for name, file, rule in [("two", breaks, {"page_break_count": 2}), ("three", breaks, {"page_break_count": 3}), ("any", breaks, {}), ("none", gold, {})]:
        case(f"page break {name}", "contains_page_break", file, rule)
    cells = lambda *rows: "<w:tbl><w:tblGrid><w:gridCol/><w:gridCol/></w:tblGrid>" + "".join(
        "<w:tr>" + "".join(f"<w:tc>{para(cell)}</w:tc>" for cell in row) + "</w:tr>" for row in rows
    ) + "</w:tbl>"
    grid = docx("grid.docx", cells(["a", "b"], ["c", "d"]))
    for name, rows in [("same", [["a", " b"], ["c", "d"]]), ("other", [["a", "b"], ["c", "e"]]), ("short", [["a", "b"]])]:
        case(f"docx table {name}", "compare_docx_tables", docx(f"grid_{name}.docx", cells(*rows)), grid)
    for func in ["compare_docx_files", "compare_docx_tables", "compare_subscript_contains", "evaluate_strike_through_last_paragraph"]:
        case(f"{func} none", func, None, gold)
        case(f"{func} damaged", func, put("cut.docx", (FILES / "gold.docx").read_bytes()[:300]), gold)
        case(f"{func} absent", func, {"file": "files/absent.docx"}, gold)
    yellow = '<style:style style:name="T1" style:family="text"><style:text-properties fo:background-color="#ffff00"/></style:style>'
    words = '<text:p>One <text:span text:style-name="T1">two</text:span> three</text:p><text:h>no</text:h>'
    gold_odt = odt("gold.odt", "<text:p>One two three</text:p>")
    marked, clean = odt("marked.odt", words, yellow), odt("clean.odt", words)
    for func in ["check_highlighted_words", "compare_docx_files"]:
        case(f"{func} odt marked", func, marked, gold_odt)
        case(f"{func} odt clean", func, clean, gold_odt)
        case(f"{func} odt other", func, odt("other.odt", "<text:p>One two</text:p>"), gold_odt)
        case(f"{func} odt none", func, None, gold_odt)
        case(f"{func} odt and docx", func, marked, gold)


def presentations():
    gold = pptx("gold.pptx", (TITLE + box("Hello"), {}))
    bold = 'b="1"'
    bullet = '<a:p><a:pPr><a:buChar char="•"/></a:pPr><a:r><a:rPr/><a:t>Hello</a:t></a:r></a:p>'
    red = '<a:p><a:r><a:rPr><a:solidFill><a:srgbClr val="FF0000"/></a:solidFill></a:rPr><a:t>Hello</a:t></a:r></a:p>'
    blue = red.replace("FF0000", "0000FF")
    made = {
        "same": box("Hello"), "text": box("Hullo"), "blank": box("Hello "), "shift": box("Hello", x=100400), "far": box("Hello", x=120000),
        "bold": box("Hello", run=bold), "not_bold": box("Hello", run='b="0"'), "size": box("Hello", run='sz="1800"'),
        "under": box("Hello", run='u="sng"'), "under_none": box("Hello", run='u="none"'), "strike": box("Hello", run='strike="sngStrike"'),
        "centre": box("Hello", own='algn="ctr"'), "left": box("Hello", own='algn="l"'), "level": box("Hello", own='lvl="1"'),
        "bullet": box("", body=bullet), "red": box("", body=red), "two": box("Hello") + box("more"),
    }
    for name, shapes in made.items():
        case(f"pptx {name}", "compare_pptx_files", pptx(f"p_{name}.pptx", (TITLE + shapes, {})), gold)
    p = lambda name: {"file": f"files/p_{name}.pptx"}
    for name, option in [("far", "shape"), ("text", "text"), ("bold", "font_bold"), ("size", "font_size"), ("centre", "alignment"), ("bullet", "bullets"), ("strike", "strike_through"), ("under", "font_underline"), ("level", "indent")]:
        case(f"pptx {name} without {option}", "compare_pptx_files", p(name), gold, **{f"examine_{option}": False})
    case("pptx colours", "compare_pptx_files", p("red"), pptx("p_blue.pptx", (TITLE + box("", body=blue), {})))
    case("pptx none", "compare_pptx_files", None, gold)
    case("pptx none any number", "compare_pptx_files", None, gold, examine_number_of_slides=False)
    case("pptx damaged", "compare_pptx_files", put("cut.pptx", (FILES / "gold.pptx").read_bytes()[:500]), gold)
    case("pptx absent", "compare_pptx_files", ABSENT, gold)
    case("pptx slides", "compare_pptx_files", pptx("p_slides.pptx", (TITLE + box("Hello"), {}), (TITLE, {})), gold)
    back = lambda color: f'<p:bg><p:bgPr><a:solidFill><a:srgbClr val="{color}"/></a:solidFill><a:effectLst/></p:bgPr></p:bg>'
    green = pptx("p_green.pptx", (TITLE + box("Hello"), {"bg": back("00FF00")}))
    case("pptx background", "compare_pptx_files", green, gold)
    for name, rgb in [("green", [0, 255, 0]), ("red", [255, 0, 0])]:
        case(f"fill {name}", "evaluate_presentation_fill_to_rgb_distance", green, {"rgb": rgb})
        case(f"fill master {name}", "evaluate_presentation_fill_to_rgb_distance", gold, {"rgb": rgb})
    fade = pptx("p_fade.pptx", (TITLE, {"transition": "<p:transition><p:dissolve/></p:transition>"}))
    for name, rule in [("yes", {"slide_idx": 0, "transition_type": "dissolve"}), ("other", {"slide_idx": 0, "transition_type": "push"}), ("no slide", {"slide_idx": 4, "transition_type": "dissolve"})]:
        case(f"transition {name}", "check_transition", fade, rule)
    case("transition none", "check_transition", gold, {"slide_idx": 0, "transition_type": "dissolve"})
    case("transition damaged", "check_transition", {"file": "files/cut.pptx"}, {"slide_idx": 0, "transition_type": "dissolve"})
    case("portrait", "check_slide_orientation_Portrait", pptx("p_high.pptx", size=(6858000, 9144000)))
    case("landscape", "check_slide_orientation_Portrait", gold)
    oor = 'xmlns:oor="http://openoffice.org/2001/registry"'
    save = lambda minutes: f'<oor:items {oor}><item oor:path="/org.openoffice.Office.Common/Save/Document"><prop oor:name="AutoSaveTimeIntervall" oor:op="fuse"><value>{minutes}</value></prop></item></oor:items>'
    case("autosave yes", "check_auto_saving_time", put("save3.xcu", save(3)), {"minutes": 3})
    case("autosave no", "check_auto_saving_time", put("save5.xcu", save(5)), {"minutes": 3})
    case("autosave unset", "check_auto_saving_time", put("save.xcu", f"<oor:items {oor}/>"), {"minutes": 3})
    view = "<desktop-frame><application><document-frame name='Slides View'/></application></desktop-frame>"
    case("left panel", "check_left_panel", view)
    case("no left panel", "check_left_panel", "<desktop-frame/>")


def pictures():
    random = np.random.default_rng(3)
    rows, columns = np.mgrid[0:24, 0:32]
    base = np.stack([(rows * 8) % 256, (columns * 7) % 256, (rows * columns) % 256], 2).astype(float)
    save = lambda name, array, mode="RGB": (Image.fromarray(np.clip(array, 0, 255).astype(np.uint8), mode).save(FILES / name), {"file": f"files/{name}"})[1]
    gold = save("gold.png", base)
    grey = base.mean(2, keepdims=True)
    made = {
        "same": base, "dark": base * 0.6, "bright": base * 1.2, "contrast": (base - 128) * 1.4 + 128, "pale": grey + (base - grey) * 0.4,
        "vivid": grey + (base - grey) * 1.5, "mirror": base[:, ::-1], "noise": base + random.normal(0, 60, base.shape), "small": base[:20, :28],
    }
    for name, array in made.items():
        file = save(f"i_{name}.png", array)
        for func in ["check_structure_sim", "check_brightness_decrease_and_structure_sim", "check_saturation_increase_and_structure_sim", "check_contrast_increase_and_structure_sim", "check_image_mirror", "check_file_exists_and_structure_sim", "check_structure_sim_resized", "compare_image_list", "compare_images"]:
            case(f"{func} {name}", func, file, gold)
        case(f"compare_images {name} base", "compare_images", file, gold, reference_base_result=0.3)
    alpha = save("alpha.png", np.concatenate([base, np.full((24, 32, 1), 255.0)], 2), "RGBA")
    Image.open(FILES / "gold.png").convert("P", palette=Image.Palette.ADAPTIVE, colors=256).save(FILES / "palette.png")
    for func in ["check_structure_sim", "compare_image_list", "check_contrast_increase_and_structure_sim", "check_palette_and_structure_sim"]:
        case(f"{func} alpha", func, alpha, gold)
    case("palette yes", "check_palette_and_structure_sim", {"file": "files/palette.png"}, gold)
    case("palette no", "check_palette_and_structure_sim", gold, gold)
    cut = put("cut.png", (FILES / "gold.png").read_bytes()[:200])
    for func in ["check_structure_sim", "check_brightness_decrease_and_structure_sim", "check_image_mirror", "check_palette_and_structure_sim", "compare_images"]:
        case(f"{func} damaged", func, cut, gold)
        case(f"{func} none", func, None, gold)
    page = np.full((20, 100, 3), 255.0)
    for name, at in [("left", 2), ("right", 50)]:
        text = page.copy()
        text[5:9, at : at + 4] = 0
        case(f"textbox {name}", "check_textbox_on_leftside", save(f"text_{name}.png", text))
        triangle = page.copy()
        triangle[0, 0] = 9
        triangle[8:12, at : at + 4] = [255, 255, 0]
        case(f"triangle {name}", "check_triangle_position", save(f"triangle_{name}.png", triangle))
    case("textbox none", "check_textbox_on_leftside", None)
    for name, rule in [("yes", {"height": 24}), ("no", {"width": 24}), ("both", {"width": 32, "height": 24})]:
        case(f"size {name}", "check_image_size", gold, rule)
    case("file small", "check_image_file_size", gold, {"max_size": 500000})
    case("file large", "check_image_file_size", gold, {"max_size": 10})
    square = np.full((12, 12, 3), 255.0)
    square[4:6, 4:6] = 0
    white = save("white.png", square)
    green = square.copy()
    green[(square == 255).all(2)] = [0, 200, 10]
    case("green yes", "check_green_background", save("green.png", green), white)
    case("green no", "check_green_background", white, white)


def texts():
    gold = put("gold.txt", "One two\nthree\n")
    for name, content in [("same", "One two\nthree\n"), ("crlf", "One two\r\nthree\r\n"), ("blanks", "One  two\tthree"), ("case", "one two\nthree\n"), ("near", "One two\nthre\n")]:
        file = put(f"x_{name}.txt", content)
        for option in [{}, {"ignore_blanks": True}, {"ignore_case": True}]:
            case(f"text {name} {option}", "compare_text_file", file, gold, **option)
        for option in [{}, {"strict": False}, {"ignore_case": True}]:
            case(f"csv {name} {option}", "compare_csv", file, gold, **option)
        case(f"diff {name}", "diff_text_file", file, gold)
        case(f"config {name}", "compare_config", file, {"expected": "One two\nthree\n"})
        case(f"contains {name}", "file_contains", file, {"expected": ["two", "three"]})
        case(f"list {name}", "check_list", file, {"expect": ["^One", "e$"], "unexpect": ["four"]})
        case(f"list not {name}", "check_list", file, {"expect": [r"\btwo/?(?! three)"], "unexpect": ["^three"]})
        case(f"results {name}", "compare_result_files", file, gold)
    case("results number", "compare_result_files", put("n1.txt", "about 3.14"), put("n2.txt", "3.14"))
    case("results near", "compare_result_files", put("n3.txt", "3.14001"), put("n4.txt", "3.14"))
    latin = put("latin.txt", "caf\xe9".encode("latin-1"))
    for func in ["compare_text_file", "compare_csv", "check_list", "compare_config", "file_contains"]:
        rule = {"check_list": {"expect": ["a"]}, "compare_config": {"expected": "a"}, "file_contains": {"expected": ["a"]}}.get(func, gold)
        case(f"{func} none", func, None, rule)
        case(f"{func} absent", func, ABSENT, rule)
        case(f"{func} latin", func, latin, rule)
    rows = put("rows.csv", "url,user\nimap://a,me\nimap://b,\"you, too\"\n")
    for name, rule in [("has", {"expect": [{"url": "imap://a", "user": "me"}]}), ("not", {"unexpect": [{"url": "imap://b"}]}), ("mixed", {"expect": [{"url": "imap://a", "user": "you, too"}]}), ("quoted", {"expect": [{"user": "you, too"}]}), ("no key", {"expect": [{"colour": "red"}]})]:
        case(f"check_csv {name}", "check_csv", rows, rule)
    settings = put("settings.json", '{"a": 1, "b": {"c": [1, 2]}, "d": true}')
    comments = put("comments.json", '// keys\n[{"key": "ctrl+j", "command": "x"}]')
    for name, rule in [("all", {"a": 1.0, "d": True}), ("other", {"a": 2}), ("more", {"e": 1}), ("truth", {"d": 1}), ("deep", {"b": {"c": [1, 2]}})]:
        case(f"settings {name}", "check_json_settings", settings, {"expected": rule})
    case("settings damaged", "check_json_settings", comments, {"expected": {"a": 1}})
    case("settings none", "check_json_settings", None, {"expected": {"a": 1}})
    case("keys yes", "check_json_keybindings", comments, {"expected": {"key": "ctrl+j", "command": "x"}})
    case("keys no", "check_json_keybindings", comments, {"expected": {"key": "ctrl+k", "command": "x"}})
    case("keys damaged", "check_json_keybindings", settings, {"expected": {}})
    for name, rule in [("eq", {"key": ["a"], "method": "eq", "ref": 1}), ("deep", {"key": ["b", "c"], "method": "eq", "ref": [1, 2]}), ("none", {"key": ["z"], "method": "eq", "ref": 1}), ("order", {"key": ["a"], "method": "gt", "ref": 0})]:
        case(f"check_json {name}", "check_json", settings, {"expect": [rule]})
        case(f"check_json not {name}", "check_json", settings, {"unexpect": [rule]})
    rc = put("gimprc", '# comment\n(undo-levels 100)\n(theme "Dark")\n(history-item "filters-vignette" 1)\n')
    for name, rule in [("yes", {"key": "undo-levels", "value": "100"}), ("no", {"key": "undo-levels", "value": "10"}), ("theme", {"key": "theme", "value": '"Dark"'}), ("pair", {"key": ["history-item", '"filters-vignette"'], "value": "1"}), ("pair no", {"key": ["history-item", '"other"'], "value": "1"})]:
        case(f"gimp {name}", "check_config_status", rc, rule)
    case("gimp blank line", "check_config_status", put("gimprc2", "  \n(a 1)\n"), {"key": "a", "value": "1"})
    case("gimp none", "check_config_status", None, {"key": "a", "value": "1"})


def values():
    for name, result, rule in [("in", "use terminal\n", {"include": ["use terminal"]}), ("out", "use no terminal", {"include": ["use terminal"]}), ("not", "abc", {"exclude": ["b"]}), ("none", None, {"include": ["a"]}), ("list", ["a", "b"], {"include": ["a"], "exclude": ["c"]})]:
        case(f"include {name}", "check_include_exclude", result, rule)
    for name, result, rule in [("same", "true", "true"), ("other", "true", "false"), ("number", 1, 1.0), ("truth", True, 1), ("none", None, "a"), ("line", "a\n", "a"), ("dict", {"a": [1]}, {"a": [1]})]:
        case(f"exact {name}", "exact_match", result, {"expected": rule})
        case(f"in list {name}", "match_in_list", result, {"expected": [rule, "z"]})
    for name, result, rule in [("has", "a.b@1\nc", "a.b"), ("has not", "c", "a.b"), ("none", None, "a")]:
        for kind in ["contain", "not_contain"]:
            case(f"extension {name} {kind}", "is_extension_installed", result, {"type": kind, "expected": rule})
    for name, result, rule in [
        ("same", {"a": "x", "b": 2}, {"expected": {"a": "x"}}), ("other", {"a": "y"}, {"expected": {"a": "x"}}), ("missing", {}, {"expected": {"a": "x"}}),
        ("text", "{'a': 'x'}", {"expected": {"a": "x"}}), ("bad text", "{a}", {"expected": {"a": "x"}}), ("none", None, {"expected": {"a": "x"}}),
        ("in list", {"a": ["x", "y"]}, {"expected": {"a": ["y"]}, "expect_in_result": True}), ("in text", {"a": "xyz"}, {"expected": {"a": "y"}, "expect_in_result": True}),
        ("one for list", {"a": "y"}, {"expected": {"a": ["y"]}, "expect_in_result": True}), ("failed", {"a": "__EVALUATION_FAILED__"}, {"expected": {"a": "__EVALUATION_FAILED__"}}),
    ]:
        case(f"json {name}", "check_direct_json_object", result, rule)
    urls = ["https://www.a.com/", "https://a.com", "http://a.com", "a.com", "https://a.co.uk/x?q=1#f", "https://a.com/x?q=1#f", "https://shop.a.com", "chrome://settings/", "https://A.com/X", "http://user@a.com:80/"]
    for one in urls:
        for other in urls[:7:2]:
            case(f"tab {one} {other}", "is_expected_active_tab", one, {"type": "url", "url": other})
    case("tab info", "is_expected_active_tab", {"url": "https://a.com/", "title": "A"}, {"type": "url", "url": "https://www.a.com"})
    case("tab none", "is_expected_active_tab", None, {"type": "url", "url": "https://a.com"})
    case("tab kind", "is_expected_active_tab", "x", {"type": "title"})
    case("approximate", "is_expected_active_tab_approximate", "chrome://p/q?x=1", {"type": "url", "url": "chrome://p/q"})
    case("approximate other", "is_expected_active_tab_approximate", "chrome://p/r", {"type": "url", "url": "chrome://p/q"})
    tabs = [{"url": "https://a.com/", "title": ""}, {"url": "https://b.org/x", "title": ""}]
    for name, wanted in [("same", ["https://www.b.org/x", "https://a.com"]), ("fewer", ["https://a.com"]), ("other", ["https://a.com", "https://c.com"])]:
        case(f"tabs {name}", "is_expected_tabs", tabs, {"type": "url", "urls": wanted})
    case("tabs none", "is_expected_tabs", [], {"type": "url", "urls": []})
    for name, result, patterns in [("yes", "https://a.com/x/y", ["a\\.com", "/y$"]), ("no", "https://a.com/x", ["/y"]), ("dict", {"url": "https://a.com"}, ["^https"]), ("none", None, ["a"]), ("empty", "", ["a"]), ("list", ["a"], ["a"])]:
        case(f"pattern {name}", "is_expected_url_pattern_match", result, {"expected": patterns})
    bar = {"bookmark_bar": {"children": [{"type": "folder", "name": "F", "children": []}, {"type": "url", "name": "A", "url": "https://a.com"}, {"type": "folder", "name": "Liked Authors", "children": [{"type": "url", "url": "u1"}, {"type": "url", "url": "u2"}]}]}}
    for name, rule in [
        ("folders", {"type": "bookmark_bar_folders_names", "names": ["Liked Authors", "F"]}), ("folders no", {"type": "bookmark_bar_folders_names", "names": ["F"]}),
        ("urls", {"type": "bookmark_bar_websites_urls", "urls": ["https://a.com"]}), ("urls no", {"type": "bookmark_bar_websites_urls", "urls": ["https://a.com/"]}),
        ("liked", {"type": "liked_authors_websites_urls", "urls": [["u1", "u3"], "u2"]}), ("liked no", {"type": "liked_authors_websites_urls", "urls": ["u1"]}), ("kind", {"type": "other"}),
    ]:
        case(f"bookmarks {name}", "is_expected_bookmarks", bar, rule)
    case("bookmarks none", "is_expected_bookmarks", [], {"type": "bookmark_bar_folders_names", "names": []})
    cookies = [[1, "www.amazon.com"], [2, ".b.com"]]
    for domain in [".amazon.com", "amazon.com", "www.amazon.com", ".c.com", "b.com"]:
        case(f"cookie {domain}", "is_cookie_deleted", cookies, {"type": "domains", "domains": [domain]})
    case("cookie none", "is_cookie_deleted", None, {"type": "domains", "domains": ["a"]})
    case("history yes", "check_history_deleted", [["https://a.com", "A", 1]], {"type": "keywords", "keywords": ["youtube"]})
    case("history no", "check_history_deleted", [["https://youtube.com", "Y", 1]], {"type": "keywords", "keywords": ["youtube"]})
    case("experiments yes", "check_enabled_experiments", ["a@1", "b"], {"type": "names", "names": ["a", "b"]})
    case("experiments order", "check_enabled_experiments", ["b", "a@1"], {"type": "names", "names": ["a", "b"]})
    for name, rule in [("value", {"type": "value", "value": 20}), ("range", {"type": "range", "min": 16, "max": 24}), ("outside", {"type": "range", "min": 20, "max": 24}), ("kind", {"type": "x"})]:
        case(f"font size {name}", "check_font_size", {"default_font_size": 20}, rule)
    apps = "['a.desktop', 'b.desktop']\n"
    for name, wanted in [("same", ["b.desktop", "a.desktop"]), ("fewer", ["a.desktop"]), ("other", ["a.desktop", "c.desktop"])]:
        case(f"favourites {name}", "check_gnome_favorite_apps", apps, {"expected": wanted})
    clock = "L\nU\nR\n                Time zone: {}\nS\n"
    case("utc yes", "is_utc_0", clock.format("Etc/UTC (UTC, +0000)"))
    case("utc no", "is_utc_0", clock.format("Asia/Tokyo (JST, +0900)"))
    case("utc short", "is_utc_0", "L\nU")
    for factor in ["1.25\n", "1.0", "0.9", "x"]:
        case(f"enlarged {factor!r}", "check_text_enlarged", factor)
    size = {"width": 1920, "height": 1080}
    for name, window in [("full", size), ("less", {"width": 1900, "height": 1080}), ("none", None)]:
        case(f"fullscreen {name}", "is_vlc_fullscreen", window, size)
    shortcuts = {"a.desktop": "[Desktop Entry]\nName=Play\nExec=run\n"}
    for name in ["Play", "Pla", "Other"]:
        case(f"shortcut {name}", "is_shortcut_on_desktop", shortcuts, {"type": "name", "name": name})


def applications():
    vlcrc = put("vlcrc", "# comment\n#qt-max-volume=125\nqt-max-volume=200\n#qt-minimal-view=0\nqt-minimal-view=1\ninput-record-path=/home/user/Desktop\n#one-instance-when-started-from-file=1\nqt-slider-colours=1;2;3;4;5;6\nglobal-key-play-pause=x\n")
    empty = put("vlcrc_empty", "[core]\n")
    for file, kind in [(vlcrc, "set"), (empty, "unset")]:
        for func, field, wanted in [
            ("check_qt_max_volume", "expected_qt_max_volume", [200, "125"]), ("check_qt_minimal_view", "expected_qt_minimal_view", [1, "0"]), ("check_qt_bgcone", "expected_qt_bgcone", [0, 1]),
            ("check_one_instance_when_started_from_file", "expected_one_instance_when_started_from_file", [0, "1"]), ("check_global_key_play_pause", "expected_global_key_play_pause", [1, 0]), ("is_vlc_recordings_folder", "recording_file_path", ["/home/user/Desktop", "/home/user"]),
        ]:
            for value in wanted:
                case(f"{func} {kind} {value}", func, file, {field: value})
        case(f"slider {kind} blackish", "check_qt_slider_colours", file, {"type": "blackish"})
        case(f"slider {kind} match", "check_qt_slider_colours", file, {"type": "match", "expected_qt_slider_colours": "1;2;3;4;5;6"})
    case("vlc absent", "check_qt_max_volume", ABSENT, {"expected_qt_max_volume": 200})
    status = lambda state, name, text: f'<root><state>{state}</state><information><category name="meta"><info name="{name}">{text}</info></category></information></root>'
    for name, content, rule in [
        ("file", status("playing", "filename", "a b.mp4"), {"type": "file_name", "file_name": "a b.mp4"}), ("other", status("playing", "filename", "c.mp4"), {"type": "file_name", "file_name": "a b.mp4"}),
        ("paused", status("paused", "filename", "a b.mp4"), {"type": "file_name", "file_name": "a b.mp4"}), ("title", status("playing", "title", "a b.mp4"), {"type": "file_name", "file_name": "a b.mp4"}),
        ("url", status("playing", "url", "https://x.org/s/a.m3u8"), {"type": "url", "url": "https://x.org/s/a.m3u8"}), ("url name", status("playing", "filename", "a.m3u8"), {"type": "url", "url": "https://x.org/s/a.m3u8"}),
        ("damaged", "<root><state>", {"type": "file_name", "file_name": "a"}),
    ]:
        case(f"playing {name}", "is_vlc_playing", put(f"status_{name.replace(' ', '_')}.xml", content), rule)
    prefs = put("prefs.js", '// Mozilla\nuser_pref("a.b", "x dark y");\nuser_pref("n", 3);\nuser_pref("t", true);\nuser_pref("sig", "Anonym\\nXYZ Lab");\n')
    for name, rule in [
        ("re", {"expect": {"a.b": {"method": "re", "ref": "dark"}}}), ("re no", {"expect": {"a.b": {"method": "re", "ref": "light"}}}), ("lines", {"expect": {"sig": {"method": "re.S", "ref": "Anonym.+XYZ"}}}), ("lines no flag", {"expect": {"sig": {"method": "re", "ref": "Anonym.+XYZ"}}}),
        ("number", {"expect": {"n": {"method": "eq", "ref": 3}}}), ("missing", {"expect": {"z": {"method": "eq", "ref": 3}}}), ("unexpected", {"unexpect": {"t": {"method": "eq", "ref": True}}}), ("not there", {"unexpect": {"z": {"method": "eq", "ref": True}}}),
    ]:
        case(f"prefs {name}", "check_thunderbird_prefs", prefs, rule)
    case("prefs none", "check_thunderbird_prefs", None, {"expect": {}})
    rules = put("filters.dat", 'version="9"\nlogging="no"\nname="discount"\nenabled="yes"\ntype="17"\naction="Move to folder"\nactionValue="mailbox://nobody@Local%20Folders/Promotions"\ncondition="AND (subject,contains,discount)"\n')
    for name, rule in [("yes", {"enabled": "yes", "action": "Move to folder", "condition": ["AND (subject,contains,discount)"]}), ("no", {"enabled": "no"}), ("condition", {"condition": ["ALL"]})]:
        case(f"filter {name}", "check_thunderbird_filter", rules, {"expect": [rule]})
        case(f"filter not {name}", "check_thunderbird_filter", rules, {"unexpect": [rule]})
    base = sqlite3.connect(FILES / "base.sqlite")
    base.executescript("pragma page_size=512; vacuum; create table m (id integer, t text); insert into m values (1, 'a'), (2, '3.5');")
    base.close()
    for name, query in [("sum", "select sum(1) > 0 from m"), ("none", "select max(id) from m where id > 9"), ("text", "select t from m where id = 2"), ("word", "select t from m where id = 1"), ("no table", "select 1 from q"), ("no row", "select 1 from m where 0")]:
        case(f"sqlite {name}", "run_sqlite3", {"file": "files/base.sqlite"}, {"sql": query})
    case("sqlite damaged", "run_sqlite3", put("cut.sqlite", b"SQLite format 3\0 no"), {"sql": "select 1 from m"})
    import fitz

    def pdf(name, *pages):
        made = fitz.open()
        for text in pages:
            made.new_page(width=200, height=200).insert_text((20, 40), text)
        made.save(FILES / name, garbage=4, deflate=True, no_new_id=True)
        return {"file": f"files/{name}"}

    gold = pdf("gold.pdf", "Hello world", "Second page")
    for name, relation, number in [("eq", "eq", 2), ("eq no", "eq", 1), ("le", "le", 3), ("lt", "lt", 2)]:
        case(f"pages {name}", "check_pdf_pages", gold, {"relation": relation, "ref_value": number})
    case("pages none", "check_pdf_pages", None, {"relation": "eq", "ref_value": 1})
    case("pages damaged", "check_pdf_pages", put("cut.pdf", b"%PDF-1.4\nnothing"), {"relation": "eq", "ref_value": 1})
    for name, file in [("same", gold), ("near", pdf("near.pdf", "Hello word", "Second page")), ("none", None), ("damaged", {"file": "files/cut.pdf"}), ("absent", ABSENT)]:
        case(f"pdf {name}", "compare_pdfs", file, gold)


# Packages that need models or system libraries.
EMPTY = ["easyocr", "acoustid", "borb", "borb.pdf"]


def metrics_of(root):
    for name in [name for name in sys.modules if name.startswith("desktop_env")]:
        del sys.modules[name]
    sys.path[:] = [path for path in sys.path if path not in (str(OLD), str(NEW))]
    sys.path.insert(0, str(root))
    for name in EMPTY:
        empty = types.ModuleType(name)
        empty.Document = empty.PDF = object
        sys.modules[name] = empty
    for name in ["desktop_env", "desktop_env.evaluators"]:
        package = types.ModuleType(name)
        package.__path__ = [str(root / name.replace(".", "/"))]
        sys.modules[name] = package
    return importlib.import_module("desktop_env.evaluators.metrics")


def with_paths(value):
    if isinstance(value, dict) and set(value) == {"file"}:
        return str(OUT / value["file"])
    if isinstance(value, list):
        return [with_paths(one) for one in value]
    return value


def score(metrics, one):
    function = getattr(metrics, one["func"], None)
    if function is None:
        return None
    arguments = [with_paths(copy.deepcopy(one["result"]))]
    if one["expected"] is not None:
        arguments.append(with_paths(copy.deepcopy(one["expected"])))
    try:
        found = function(*arguments, **copy.deepcopy(one["options"]))
        return "raises" if found is None else round(float(found), 9)
    except Exception:
        return "raises"


def write_scored(name, chosen=lambda cases: cases):
    """Writes the chosen ones of all cases with the scores of both versions."""
    for key, root in [("arpo_era", OLD), ("verified", NEW)]:
        metrics = metrics_of(root)
        for one in CASES:
            one[key] = None if key == "arpo_era" and one["func"] in ONLY_NEW else score(metrics, one)
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in chosen(CASES))
    (OUT / name).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def main():
    FILES.mkdir(parents=True, exist_ok=True)
    for make in [tables, documents, presentations, pictures, texts, values, applications]:
        make()
    write_scored("cases.json")


if __name__ == "__main__":
    main()
