"""Makes further golden cases of crates/arpo-osworld, of kinds on which this program once differed from OSWorld.

Usage: python make_more_cases.py OUT OLD NEW, as make_cases.py, whose versions it shares, with PyPDF2. Writes more_cases.json and files with the prefix "more_".
"""

import make_cases as base
import numpy as np
from make_cases import ABSENT, FILES, OFFICE, TITLE, archive, book, box, case, content_types, pptx, put, relations
from openpyxl.chart import BarChart, LineChart, Reference
from openpyxl.formatting.rule import CellIsRule, FormulaRule
from openpyxl.styles import Font, PatternFill
from openpyxl.worksheet.filters import CustomFilter, CustomFilters, FilterColumn, Filters
from PIL import Image

MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
PAIR = {"sheet_idx0": 0, "sheet_idx1": "EI0"}
DATA = [{"type": "sheet_data", **PAIR}]


def sheet(name, rows, strings=(), formats=(), after=""):
    """A workbook written by hand: rows of XML, shared texts, number formats (styles from 1 on), what follows the rows."""
    spreadsheet = "spreadsheetml.sheet.main"
    kinds = {"/xl/workbook.xml": spreadsheet, "/xl/worksheets/sheet1.xml": "spreadsheetml.worksheet", "/xl/sharedStrings.xml": "spreadsheetml.sharedStrings", "/xl/styles.xml": "spreadsheetml.styles"}
    codes = "".join(f'<numFmt numFmtId="{170 + i}" formatCode="{code}"/>' for i, code in enumerate(formats))
    cells = "".join(f'<xf numFmtId="{170 + i}" fontId="0" fillId="0" borderId="0"/>' for i in range(len(formats)))
    plain = '<xf numFmtId="0" fontId="0" fillId="0" borderId="0"/>'
    return archive(
        f"more_{name}.xlsx",
        {
            "[Content_Types].xml": content_types(**kinds),
            "_rels/.rels": relations(("rId1", "officeDocument", "xl/workbook.xml")),
            "xl/workbook.xml": f'<workbook {MAIN} xmlns:r="{OFFICE}"><sheets><sheet name="Sheet1" sheetId="1" r:id="rId1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": relations(("rId1", "worksheet", "worksheets/sheet1.xml"), ("rId2", "sharedStrings", "sharedStrings.xml"), ("rId3", "styles", "styles.xml")),
            "xl/sharedStrings.xml": f"<sst {MAIN}>" + "".join(f"<si>{text}</si>" for text in strings) + "</sst>",
            "xl/styles.xml": f'<styleSheet {MAIN}><numFmts count="{len(formats)}">{codes}</numFmts><fonts><font><sz val="11"/></font></fonts><fills><fill><patternFill patternType="none"/></fill></fills>'
            f'<borders><border/></borders><cellStyleXfs>{plain}</cellStyleXfs><cellXfs>{plain}{cells}</cellXfs></styleSheet>',
            "xl/worksheets/sheet1.xml": f"<worksheet {MAIN}><sheetData>{rows}</sheetData>{after}</worksheet>",
        },
    )


def rows(*cells):
    return "".join(f'<row r="{i + 1}">{cell}</row>' for i, cell in enumerate(cells))


def cells_of_sheets():
    shared = ["<t>a_x005F_b</t>", "<t>x005F_</t>", "<r><t>c</t></r><r><t>d</t></r>", "<t/>"]
    made = {
        "shared": rows('<c r="A1" t="s"><v>0</v></c>', '<c r="A2" t="s"><v>1</v></c>', '<c r="A3" t="s"><v>2</v></c>'),
        "inline": rows('<c r="A1" t="inlineStr"><is><t>a_x005F_b</t></is></c>', '<c r="A2" t="inlineStr"><is><t>x005F_</t></is></c>', '<c r="A3" t="inlineStr"><is><r><t>c</t></r><r><t>d</t></r></is></c>'),
        "plain": rows('<c r="A1" t="inlineStr"><is><t>a_b</t></is></c>', '<c r="A2" t="inlineStr"><is><t></t></is></c>', '<c r="A3" t="str"><v>cd</v></c>'),
        "formula": rows('<c r="A1" t="str"><f>"a"</f><v>a</v></c>', '<c r="A2"><f>1+1</f></c>', '<c r="A3"><f>1+1</f><v></v></c>', '<c r="A4" t="str"><f>"x"</f><v></v></c>'),
        "value": rows('<c r="A1" t="str"><v>a</v></c>', '<c r="A2"><v>2</v></c>', '<c r="A3"><v>2</v></c>', '<c r="A4" t="str"><v>x</v></c>'),
        "nothing": rows('<c r="A1" t="str"><v>a</v></c>', '<c r="A2"/>', '<c r="A3"/>', '<c r="A4"/>'),
        "truth": rows('<c r="A1" t="b"><v>1</v></c>', '<c r="A2" t="e"><v>#DIV/0!</v></c>', '<c r="A3"><v>1E2</v></c>', '<c r="A4" t="n"><v> 5 </v></c>'),
    }
    files = {name: sheet(name, xml, shared) for name, xml in made.items()}
    for one in files:
        for other in ["shared", "plain", "formula", "value", "nothing"]:
            case(f"cells data {one} {other}", "compare_table", files[one], files[other], rules=DATA)
        for place in ["A1", "A2", "A3", "A4"]:
            for method, ref in [("eq", "a_b"), ("eq", 2), ("eq", None), ("ne", "x"), ("re", "^.$"), ("re.I", "A"), ("approx:0.1", 2), ("gt", 1)]:
                rule = {"type": "check_cell", "sheet_idx": 0, "coordinate": place, "props": {"value": {"method": method, "ref": ref}}}
                case(f"cell {one} {place} {method} {ref}", "compare_table", files[one], rules=[rule])
            fuzzy = {"type": "sheet_fuzzy", **PAIR, "rules": [{"range": [place], "type": "exact_match"}]}
            case(f"fuzzy {one} {place}", "compare_table", files[one], files["formula"], rules=[fuzzy])
    codes = ["0_d", "0\\d", "_d0.0", "0.0_);d", "[HH]0", "[h]:mm", "[h", "&quot;d&quot;0", "&quot;d0", "[Red]0", "[$-409]d", "yyyy", "\\\\d", "General_y", "@", "0&quot;s&quot;_s"]
    for i, code in enumerate(codes):
        dated = sheet(f"format{i}", f'<row r="1"><c r="A1" t="str"><v>h</v></c></row><row r="2"><c r="A2" s="1"><v>44197.5</v></c></row>', (), [code])
        number = sheet("number", '<row r="1"><c r="A1" t="str"><v>h</v></c></row><row r="2"><c r="A2"><v>44197.5</v></c></row>')
        case(f"format {code}", "compare_table", dated, number, rules=DATA)
        rule = {"type": "check_cell", "sheet_idx": 0, "coordinate": "A2", "props": {"number_format": {"method": "ne", "ref": None}}}
        case(f"format of {code}", "compare_table", dated, rules=[rule])


def looks_of_sheets():
    grid = [["a", "b", "c"], [1, 2, 3], [4, 5, 6]]

    def look(merge=None, fill=None, bold=None, link=None):
        def change(made):
            page = made.active
            if fill:
                page[fill].fill = PatternFill("solid", fgColor="FF00FF00")
            if bold:
                page[bold].font = Font(bold=True, color="FFFF0000", name="Arial", size=9, italic=True, underline="double")
            if link:
                page[link].hyperlink = "https://a.com"
            if merge:
                page.merge_cells(merge)

        return change

    made = {
        "plain": look(), "merged": look("B2:C3"), "outside": look("E5:F6"), "row": look("A4:C4"), "filled": look(None, "B2"), "filled_under": look("A2:B2", "B2"),
        "bold": look(None, None, "A1"), "linked": look(None, None, None, "A1"),
    }
    files = {name: book(f"more_look_{name}.xlsx", grid, change) for name, change in made.items()}
    styles = [["bgcolor"], ["fill_type"], ["font_bold"], ["font_color"], ["number_format"], ["font_name", "font_size"], ["hyperlink"], ["merge"], ["fgcolor"], ["font_underline", "font_italic", "font_family"], ["no_such"], []]
    for one, other in [("plain", "plain"), ("merged", "plain"), ("outside", "plain"), ("row", "plain"), ("filled", "plain"), ("filled_under", "merged"), ("outside", "outside"), ("filled_under", "filled_under"), ("bold", "bold"), ("bold", "plain"), ("linked", "plain"), ("linked", "linked")]:
        for props in styles:
            case(f"style {one} {other} {props}", "compare_table", files[one], files[other], rules=[{"type": "style", "props": props, **PAIR}])
        case(f"merged data {one} {other}", "compare_table", files[one], files[other], rules=DATA)
    for one in files:
        for place in ["A1", "B2", "C3", "E5", "F6", "Z99"]:
            for prop, ref in [("merge", True), ("merge", False), ("bgcolor", "FF00FF00"), ("bgcolor", "00000000"), ("font_bold", True), ("font_bold", None), ("fill_type", "patternFill"), ("font_color", "FFFF0000"), ("number_format", "General"), ("hyperlink", ""), ("no_such", None), ("font_name", "Arial"), ("fgcolor", "FF00FF00")]:
                rule = {"type": "check_cell", "sheet_idx": 0, "coordinate": place, "props": {prop: {"method": "eq", "ref": ref}}}
                case(f"look {one} {place} {prop} {ref}", "compare_table", files[one], rules=[rule])
        rule = {"type": "check_cell", "sheet_idx": 0, "coordinate": "A1", "props": {"font_name": {"method": "re", "ref": "al"}}}
        case(f"look {one} re", "compare_table", files[one], rules=[rule])


def conditions():
    grid = [["a", "b"], [1, "x"], [5, "yes"], [9, None], [3, "x"]]
    red = {"font": Font(color="FFFF0000"), "fill": PatternFill(bgColor="FFFF0000")}

    def rule(made_rule, where="A2:A5"):
        return lambda made: made.active.conditional_formatting.add(where, made_rule)

    made = {
        "none": None,
        "greater": rule(CellIsRule(operator="greaterThan", formula=["4"], **red)), "less": rule(CellIsRule(operator="lessThan", formula=["4"], **red)), "between": rule(CellIsRule(operator="between", formula=["5", "3"], **red)),
        "outside": rule(CellIsRule(operator="notBetween", formula=["3", "5"], **red)), "text": rule(CellIsRule(operator="equal", formula=['"x"'], **red), "B2:B5"), "not_equal": rule(CellIsRule(operator="notEqual", formula=["5"], **red)),
        "expression": rule(FormulaRule(formula=["A2>4"], **red)), "fixed_column": rule(FormulaRule(formula=["$A2>4"], **red)), "and": rule(FormulaRule(formula=["AND(A2>2,A2<6)"], **red)), "or": rule(FormulaRule(formula=["OR(A2=1,A2=9)"], **red)),
        "arithmetic": rule(FormulaRule(formula=["A2*2-1>=9"], **red)), "no_fill": rule(FormulaRule(formula=["A2>4"], font=Font(color="FFFF0000"))),
        "at_least": rule(CellIsRule(operator="greaterThanOrEqual", formula=["5"], **red)), "not": rule(FormulaRule(formula=["NOT(A2>4)"], **red)),
    }
    files = {name: book(f"more_if_{name}.xlsx", grid, change) for name, change in made.items()}

    def paint(made):
        for place in ["A3", "A4"]:
            made.active[place].fill = PatternFill("solid", fgColor="FFFF0000")
            made.active[place].font = Font(color="FFFF0000")

    files["painted"] = book("more_if_painted.xlsx", grid, paint)
    for one in files:
        for other in ["none", "greater", "painted", "expression"]:
            for props in [["bgcolor"], ["fill_type"], ["font_bold"]]:
                case(f"condition {one} {other} {props}", "compare_table", files[one], files[other], rules=[{"type": "style", "props": props, **PAIR}])


def parts_of_sheets():
    grid = [["a", "b"], [1, 2], [3, 4], [5, 6]]

    def filtered(values=None, custom=None, sort=None, ref="A1:B4"):
        def change(made):
            filters = made.active.auto_filter
            filters.ref = ref
            if values is not None:
                filters.filterColumn.append(FilterColumn(colId=0, filters=Filters(filter=values)))
            if custom:
                filters.filterColumn.append(FilterColumn(colId=1, customFilters=CustomFilters(_and=custom[0], customFilter=[CustomFilter(operator=o, val=v) for o, v in custom[1]])))
            if sort:
                filters.add_sort_condition(sort[0], sort[1])

        return change

    made = {
        "none": None, "range": filtered(), "shorter": filtered(ref="A1:B3"), "values": filtered(["1", "3"]), "turned": filtered(["3", "1"]), "fewer": filtered(["1"]),
        "custom": filtered(None, (True, [("greaterThan", "2"), ("lessThan", "9")])), "custom_or": filtered(None, (False, [("greaterThan", "2"), ("lessThan", "9")])), "sorted": filtered(None, None, ("B2:B4", True)), "sorted_up": filtered(None, None, ("B2:B4", False)),
    }
    files = {name: book(f"more_filter_{name}.xlsx", grid, change) for name, change in made.items()}
    for one in files:
        for other in ["range", "values", "custom", "sorted", "none"]:
            case(f"filter {one} {other}", "compare_table", files[one], files[other], rules=[{"type": "filter", **PAIR}])
    x14 = 'xmlns:x14="http://schemas.microsoft.com/office/spreadsheetml/2009/9/main" xmlns:xm="http://schemas.microsoft.com/office/excel/2006/main"'

    def sparkline(name, *lines):
        inner = "".join(f"<x14:sparkline><xm:f>{f}</xm:f><xm:sqref>{at}</xm:sqref></x14:sparkline>" for f, at in lines)
        group = f"<x14:sparklineGroups><x14:sparklineGroup><x14:sparklines>{inner}</x14:sparklines></x14:sparklineGroup></x14:sparklineGroups>"
        return sheet(f"spark_{name}", rows('<c r="A1"><v>1</v></c>'), (), (), f'<extLst><ext {x14} uri="{{05C60535-1F16-4fd2-B633-F4F36F0B64E0}}">{group}</ext></extLst>' if lines else "")

    sparks = {"one": sparkline("one", ("Sheet1!A1:C1", "D1")), "two": sparkline("two", ("Sheet1!A1:C1", "D1"), ("Sheet1!A2:C2", "D2")), "turned": sparkline("turned", ("Sheet1!A2:C2", "D2"), ("Sheet1!A1:C1", "D1")), "other": sparkline("other", ("Sheet1!A1:B1", "D1")), "none": sparkline("none")}
    for one in sparks:
        for other in ["one", "two", "none"]:
            case(f"sparkline {one} {other}", "compare_table", sparks[one], sparks[other], rules=[{"type": "sparkline", **PAIR}])
    case("sparkline no sheet", "compare_table", sparks["one"], sparks["one"], rules=[{"type": "sparkline", "sheet_idx0": "RNno", "sheet_idx1": "EI0"}])

    def chart(kind=BarChart, width=None, height=None, place="E2", legend="r", axis=None):
        def add(made):
            drawn = kind()
            drawn.title = "T"
            if width:
                drawn.width, drawn.height = width, height
            if axis:
                drawn.x_axis.title, drawn.y_axis.title = axis
            if legend is None:
                drawn.legend = None
            else:
                drawn.legend.position = legend
            drawn.add_data(Reference(made.active, min_col=2, min_row=1, max_row=3), titles_from_data=True)
            made.active.add_chart(drawn, place)

        return add

    drawn = {"plain": chart(), "wide": chart(width=30, height=10), "moved": chart(place="H9"), "top": chart(legend="t"), "bare": chart(legend=None), "axes": chart(axis=("x", "y")), "line": chart(LineChart)}
    charts = {name: book(f"more_chart_{name}.xlsx", grid, change) for name, change in drawn.items()}
    for one in charts:
        for other in ["plain", "wide", "axes"]:
            for props in [["width"], ["height"], ["anchor"], ["legend"], ["xtitle", "ytitle", "ztitle"], ["direction"], []]:
                case(f"chart {one} {other} {props}", "compare_table", charts[one], charts[other], rules=[{"type": "chart", "chart_props": props, **PAIR}])


def slides():
    centre = box("Hello", own='algn="ctr"')
    group = lambda inner: f'<p:grpSp><p:nvGrpSpPr><p:cNvPr id="9" name="g"/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>{inner}</p:grpSp>'
    solid = lambda color: f'<p:bg><p:bgPr><a:solidFill><a:srgbClr val="{color}"/></a:solidFill><a:effectLst/></p:bgPr></p:bg>'
    backs = {
        "none": "", "white": solid("FFFFFF"), "near": solid("FEFFFF"), "black": solid("000000"), "empty": "<p:bg><p:bgPr><a:noFill/><a:effectLst/></p:bgPr></p:bg>",
        "theme": '<p:bg><p:bgPr><a:solidFill><a:schemeClr val="bg1"/></a:solidFill><a:effectLst/></p:bgPr></p:bg>', "ref": '<p:bg><p:bgRef idx="1001"><a:schemeClr val="bg1"/></p:bgRef></p:bg>',
        "gradient": '<p:bg><p:bgPr><a:gradFill><a:gsLst><a:gs pos="0"><a:srgbClr val="FF0000"/></a:gs><a:gs pos="100000"><a:srgbClr val="00FF00"/></a:gs></a:gsLst></a:gradFill><a:effectLst/></p:bgPr></p:bg>',
        "bare": "<p:bg><p:bgPr><a:effectLst/></p:bgPr></p:bg>", "pattern": '<p:bg><p:bgPr><a:pattFill prst="pct5"/><a:effectLst/></p:bgPr></p:bg>', "group": "<p:bg><p:bgPr><a:grpFill/><a:effectLst/></p:bgPr></p:bg>",
        "named": '<p:bg><p:bgPr><a:solidFill><a:prstClr val="red"/></a:solidFill><a:effectLst/></p:bgPr></p:bg>', "system": '<p:bg><p:bgPr><a:solidFill><a:sysClr val="window" lastClr="FFFFFF"/></a:solidFill><a:effectLst/></p:bgPr></p:bg>',
    }
    files = {name: pptx(f"more_bg_{name}.pptx", (TITLE + box("Hello"), {"bg": xml})) for name, xml in backs.items()}
    for one in files:
        for other in ["none", "white", "near", "theme", "gradient"]:
            case(f"background {one} {other}", "compare_pptx_files", files[one], files[other])
            case(f"background {one} {other} not examined", "compare_pptx_files", files[one], files[other], examine_background_color=False)
        for rgb in [[255, 255, 255], [254, 255, 255], [0, 0, 0]]:
            case(f"fill distance {one} {rgb}", "evaluate_presentation_fill_to_rgb_distance", files[one], {"rgb": rgb})
    shapes = {
        "left": box("Hello"), "centre": centre, "l": box("Hello", own='algn="l"'), "justified": box("Hello", own='algn="just"'), "grouped": group(box("Hello")), "grouped_centre": group(centre), "grouped_two": group(box("Hello") + centre),
        "two_lines": box("", body="<a:p><a:r><a:t>Hello</a:t></a:r></a:p><a:p/>"), "break": box("", body="<a:p><a:r><a:t>Hel</a:t></a:r><a:br/><a:r><a:t>lo</a:t></a:r></a:p>"), "field": box("", body='<a:p><a:fld id="{1}" type="slidenum"><a:t>Hello</a:t></a:fld></a:p>'),
        "empty_run": box("", body="<a:p><a:r><a:t></a:t></a:r></a:p>"), "spaces": box("Hello  "), "level": box("Hello", own='lvl="0"'), "odd": box("Hello", own='algn="nonsense"'),
        "picture_bullet": box("", body='<a:p><a:pPr><a:buAutoNum type="arabicPeriod"/></a:pPr><a:r><a:t>Hello</a:t></a:r></a:p>'),
    }
    made = {name: pptx(f"more_p_{name}.pptx", (TITLE + xml, {})) for name, xml in shapes.items()}
    for one in made:
        for other in ["left", "centre", "grouped", "two_lines", "break"]:
            for options in [{}, {"examine_alignment": False}, {"examine_alignment": False, "examine_text": False}, {"examine_bullets": False, "examine_indent": False}]:
                case(f"slide {one} {other} {options}", "compare_pptx_files", made[one], made[other], **options)


def images():
    rows_, columns = np.mgrid[0:24, 0:32]
    color = np.stack([(rows_ * 8) % 256, (columns * 7) % 256, (rows_ * columns) % 256], 2).astype(np.uint8)
    grey = color.mean(2).astype(np.uint8)
    alpha = ((rows_ + columns) * 4 % 256).astype(np.uint8)
    made = {
        "rgb": Image.fromarray(color), "half": Image.fromarray((color * 0.5).astype(np.uint8)), "mirror": Image.fromarray(color[:, ::-1]), "grey": Image.fromarray(grey), "grey_mirror": Image.fromarray(grey[:, ::-1]),
        "rgba": Image.fromarray(np.dstack([color, alpha])), "rgba_dark": Image.fromarray(np.dstack([(color * 0.5).astype(np.uint8), alpha])), "rgba_clear": Image.fromarray(np.dstack([color, np.zeros_like(alpha)])),
        "rgba_mirror": Image.fromarray(np.dstack([color, alpha])[:, ::-1]), "la": Image.fromarray(np.dstack([grey, alpha]), "LA"), "small": Image.fromarray(color[:12, :16].copy()), "tiny": Image.fromarray(color[:5, :5].copy()),
        "wide": Image.fromarray(color).resize((64, 24)), "bit": Image.fromarray(grey).convert("1"), "deep": Image.fromarray(grey.astype(np.int32) * 257).convert("I"),
        "palette": Image.fromarray(color).convert("P", palette=Image.Palette.ADAPTIVE, colors=16), "clear_palette": None, "vivid": Image.fromarray(np.clip((color.astype(float) - 128) * 1.5 + 128, 0, 255).astype(np.uint8)), "flat": Image.fromarray(np.full_like(color, 90)),
    }
    clear = made["palette"].copy()
    made["clear_palette"] = clear
    files = {}
    for name, image in made.items():
        image.save(FILES / f"more_i_{name}.png", **({"transparency": 3} if name == "clear_palette" else {}))
        files[name] = {"file": f"files/more_i_{name}.png"}
    Image.fromarray(color).save(FILES / "more_i_jpeg.jpg", quality=90)
    files["jpeg"] = {"file": "files/more_i_jpeg.jpg"}
    functions = ["check_brightness_decrease_and_structure_sim", "check_contrast_increase_and_structure_sim", "check_image_mirror", "check_structure_sim", "check_saturation_increase_and_structure_sim", "check_structure_sim_resized", "check_file_exists_and_structure_sim", "compare_image_list", "check_palette_and_structure_sim", "check_structure_sim_with_threshold", "compare_images"]
    for one in files:
        for other in ["rgb", "rgba", "grey", "small"]:
            # decoders of JPEG differ in the last digits
            for func in functions if one != "jpeg" else functions[:-1]:
                case(f"{func} {one} {other}", func, files[one], files[other])
        for func in ["check_textbox_on_leftside", "check_triangle_position"]:
            case(f"{func} {one}", func, files[one])
        for rule in [{"width": 32}, {"height": 24, "width": 32}, {"height": 12, "ignore_transparent": True}, {}]:
            case(f"size {one} {rule}", "check_image_size", files[one], rule)
        case(f"green {one}", "check_green_background", files[one], files["rgb"])


def lines():
    texts = {
        "plain": "a,b\n1,2\n", "bom": "\ufeffa,b\n1,2\n", "crlf": "a,b\r\n1,2\r\n", "no_end": "a,b\n1,2", "blank": "a,b\n1,2\n\n", "quoted": '"a","b"\n"1","2"\n', "multi": 'a,b\n"1\n2",3\n', "more": "a,b\n1,2,3\n", "fewer": "a,b\n1\n", "spaces": " a , b \n 1 , 2 \n",
        "upper": "A,B\n1,2\n", "empty": "", "ff": "a,b\x0c\n1,2\n", "cr": "a,b\r1,2\r", "header": "a,b\n", "same_names": "a,a\n1,2\n", "quote_inside": 'a,b\n1"x,2\n', "nul": "a,b\n1,\x002\n", "first_blank": "\na,b\n1,2\n",
    }
    files = {name: put(f"more_{name}.csv", text) for name, text in texts.items()}
    files["latin"] = put("more_latin.csv", "a,b\n1,\xe9\n".encode("latin-1"))
    for one in files:
        for other in ["plain", "bom", "no_end"]:
            for options in [{}, {"strict": False}, {"ignore_case": True}]:
                case(f"csv {one} {other} {options}", "compare_csv", files[one], files[other], **options)
        case(f"csv {one} any", "compare_csv", files[one], [files["plain"], files["upper"]])
        for rule in [{"expect": [{"a": "1"}]}, {"expect": [{"a": "1", "b": "2"}]}, {"unexpect": [{"b": "2"}]}, {"expect": [{"\ufeffa": "1"}]}, {"expect": [{"b": None}]}, {"expect": []}, {}, {"expect": [{"a": "1"}], "unexpect": [{"a": "9"}]}, {"expect": [{"a": 1}]}, {"expect": [{}]}, {"expect": [{" a ": " 1 "}]}, {"expect": [{"a": "1\n2"}]}]:
            case(f"check_csv {one} {rule}", "check_csv", files[one], rule)
    case("check_csv absent", "check_csv", ABSENT, {"expect": []})
    case("check_csv none", "check_csv", None, {"expect": []})
    settings = {"object": '{"a": 1, "b": null, "c": "x"}', "list": '["a", "b"]', "text": '"a b"', "number": "5", "null": "null", "comment": '// x\n{"a": 1}', "trailing": '{"a": 1,}', "twice": '{"a": 1, "a": 2}', "nan": '{"a": NaN}', "empty": "", "bom": '\ufeff{"a": 1}', "infinite": '{"a": Infinity}', "large": '{"a": 100000000000000000000000}', "deep": '{"a": {"b": [1, {"c": 2.0}]}}', "control": '{"a": "x\ty"}'}
    for name, text in settings.items():
        file = put(f"more_settings_{name}.json", text)
        for rule in [{"a": 1}, {"a": 2}, {"b": None}, {"d": None}, {}, {"a": {"b": [1, {"c": 2}]}}, {"a": 100000000000000000000000}, {"a": "x\ty"}]:
            case(f"settings {name} {rule}", "check_json_settings", file, {"expected": rule})
            case(f"keys {name} {rule}", "check_json_keybindings", file, {"expected": rule})
        for expected in ['{"a": 1}', text, "", "a", '{"c": "x"}']:
            for options in [{}, {"containment_ok": True}]:
                case(f"config {name} {expected!r} {options}", "compare_config", file, {"expected": expected}, **options)
        for rule in [{"key": ["a"], "method": "eq", "ref": 1}, {"key": ["b"], "method": "eq", "ref": None}, {"key": [0], "method": "eq", "ref": "a"}, {"key": ["a", "b", 1, "c"], "method": "eq", "ref": 2}, {"key": [], "method": "ne", "ref": 7}]:
            case(f"json {name} {rule}", "check_json", file, {"expect": [rule]})
            case(f"json not {name} {rule}", "check_json", file, {"unexpect": [rule]})
    case("settings absent", "check_json_settings", ABSENT, {"expected": {}})
    for value in ["1.5", "1.5\n", " 2 ", "1", "1.0000001", "nan", "inf", "-1", "1_5", "1,5", "", None, 2, 1.5, True, "0x2", "１.５", "1e1", [], {}]:
        case(f"enlarged {value!r}", "check_text_enlarged", value)
    for result in ["https://a.com/x", "", None, {"url": "https://a.com/x"}, {"url": None}, {"url": ""}, {"title": "x"}, {}, [], ["https://a.com/x"], 5, 0, True, {"url": 5}]:
        for patterns in [["a\\.com"], ["^https", "/y"], [], "a", ["("], None, [5], ["A\\.COM"], ["(?i)A\\.COM"]]:
            case(f"pattern {result!r} {patterns!r}", "is_expected_url_pattern_match", result, {"expected": patterns})
    info = lambda *entries: "".join(f'<info name="{name}">{text}</info>' for name, text in entries)
    status = lambda *categories, state="playing": f"<root><state>{state}</state><information>" + "".join(f'<category name="{name}">{inner}</category>' for name, inner in categories) + "</information></root>"
    statuses = {
        "name": status(("meta", info(("filename", "a b.mp4")))), "path": status(("meta", info(("filename", "/home/user/a b.mp4")))), "longer": status(("meta", info(("filename", "xa b.mp4")))), "title": status(("meta", info(("filename", ""), ("title", "a b.mp4")))),
        "twice": status(("meta", info(("x", "y"))), ("meta", info(("filename", "a b.mp4")))), "url": status(("meta", info(("url", "https://x.org/s/a.m3u8?t=1")))), "stream": status(("Stream 0", info(("Codec", "https://x.org/s/a.m3u8")))), "host": status(("meta", info(("url", "http://x.org/q/s/a.m3u8")))),
        "base": status(("meta", info(("filename", "a.m3u8")))), "paused": status(("meta", info(("filename", "a b.mp4"))), state="paused"), "no_state": "<root><information/></root>", "empty_state": "<root><state/></root>", "nothing": "<root><state>playing</state></root>", "upper": status(("meta", info(("URI", "https://x.org/s/a.m3u8")))),
        "nested": "<root><state>playing</state><x>" + status(("meta", info(("filename", "a b.mp4"))))[6:-7] + "</x></root>", "html": "<html>", "empty": "",
    }
    for name, text in statuses.items():
        file = put(f"more_status_{name}.xml", text)
        for rule in [{"type": "file_name", "file_name": "a b.mp4"}, {"type": "url", "url": "https://x.org/s/a.m3u8"}, {"type": "other"}, {"type": "file_name", "file_name": ""}, {"type": "url", "url": "https://x.org/q/s/a.m3u8"}, {"type": "file_name"}]:
            case(f"playing {name} {rule}", "is_vlc_playing", file, rule)
    case("playing none", "is_vlc_playing", None, {"type": "file_name", "file_name": "a"})


def documents_of_pages():
    import fitz

    def pdf(name, *pages, **options):
        made = fitz.open()
        for text in pages:
            made.new_page(width=200, height=200).insert_text((20, 40), text)
        made.save(FILES / f"more_{name}.pdf", **{"garbage": 4, "deflate": True, "no_new_id": True, **options})
        return {"file": f"files/more_{name}.pdf"}

    gold = pdf("gold", "Hello world", "Second page")
    files = {
        "gold": gold, "owner": pdf("owner", "Hello world", "Second page", encryption=fitz.PDF_ENCRYPT_AES_256, owner_pw="x", user_pw=""), "rc4": pdf("rc4", "Hello world", "Second page", encryption=fitz.PDF_ENCRYPT_RC4_128, owner_pw="x", user_pw=""),
        "aes128": pdf("aes128", "Hello world", "Second page", encryption=fitz.PDF_ENCRYPT_AES_128, owner_pw="x", user_pw=""), "closed": pdf("closed", "Hello world", "Second page", encryption=fitz.PDF_ENCRYPT_AES_256, owner_pw="x", user_pw="y"),
        "text": put("more_text.pdf", "Hello world\nSecond page\n"), "text_txt": put("more_text.txt", "Hello world\nSecond page\n"), "empty": put("more_empty.pdf", ""), "one": pdf("one", "Hello world"),
    }
    for one in files:
        for other in ["gold", "text", "text_txt"]:
            case(f"pdf {one} {other}", "compare_pdfs", files[one], files[other])
        for relation, number in [("eq", 2), ("ge", 1), ("lt", 2)]:
            case(f"pages {one} {relation} {number}", "check_pdf_pages", files[one], {"relation": relation, "ref_value": number})


def main():
    FILES.mkdir(parents=True, exist_ok=True)
    for make in [cells_of_sheets, looks_of_sheets, conditions, parts_of_sheets, slides, images, lines, documents_of_pages]:
        make()
    base.write_scored("more_cases.json")


main()
