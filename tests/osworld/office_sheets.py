"""Sheets that LibreOffice saves, and their cases; see make_office_cases.py."""

import datetime

import openpyxl
from make_cases import case
from openpyxl.chart import BarChart, LineChart, PieChart, Reference, ScatterChart, Series
from openpyxl.formatting.rule import CellIsRule, ColorScaleRule, FormulaRule, Rule
from openpyxl.styles import Font, PatternFill
from openpyxl.styles.differential import DifferentialStyle
from openpyxl.worksheet.datavalidation import DataValidation
from openpyxl.worksheet.filters import CustomFilter, CustomFilters, FilterColumn, Filters

PAIR = {"sheet_idx0": 0, "sheet_idx1": "EI0"}
DATA = [{"type": "sheet_data", **PAIR}]
DAY = datetime.datetime(2024, 5, 1)
ROWS = [
    ["Name", "Amount", "Date", "Rate", "Text"],
    ["Ann", 120.5, DAY, 0.25, "x"],
    ["Bob", 80, DAY + datetime.timedelta(days=31), 0.5, "y"],
    ["Cid", 43.123456, DAY + datetime.timedelta(hours=36), 1, "x"],
    ["Dot", -7, DAY, 0.125, None],
]
RED = PatternFill("solid", fgColor="FFFF0000")
RED_IF = {"fill": PatternFill(bgColor="FFFF0000"), "font": Font(color="FFFFFFFF")}


def saved(office, name, change=None, rows=ROWS):
    """A workbook of openpyxl, saved again by LibreOffice."""
    made = openpyxl.Workbook()
    made.active.title = "Sheet1"
    for row in rows:
        made.active.append(row)
    if change:
        change(made)
    path, file = office.source(name, "xlsx", "xlsx")
    made.save(path)
    return file


def cell_case(name, file, place, **props):
    rule = {"type": "check_cell", "sheet_idx": 0, "coordinate": place, "props": props}
    case(f"{name} {place}", "compare_table", file, rules=[rule])


def pair_case(name, one, other, kind, **options):
    case(name, "compare_table", one, other, rules=[{"type": kind, **PAIR, **options}])


def sheets(office):
    plain = saved(office, "plain")
    looks(office, plain)
    values(office, plain)
    conditions(office, plain)
    filters(office, plain)
    charts(office, plain)
    flat_sheets(office)


def looks(office, plain):
    def on(place, **styles):
        def change(made):
            for name, style in styles.items():
                setattr(made.active[place], name, style)

        return change

    def view(made):
        page = made.active
        page.row_dimensions[3].hidden = True
        page.row_dimensions[4].height = 30
        page.column_dimensions["B"].width = 25
        page.column_dimensions["D"].hidden = True

    def merge(where):
        return lambda made: made.active.merge_cells(where)

    def link(made):
        made.active["A2"].hyperlink = "https://a.com/x"

    files = {
        "plain": plain, "bold": saved(office, "bold", on("A1", font=Font(bold=True, color="FFFF0000", name="Arial", size=9))), "italic": saved(office, "italic", on("B2", font=Font(italic=True, underline="single", strike=True))),
        "red": saved(office, "red", on("B2", fill=RED)), "red_empty": saved(office, "red_empty", on("E5", fill=RED)), "outside": saved(office, "outside", on("H9", fill=RED)), "merged": saved(office, "merged", merge("A6:C7")), "merged_data": saved(office, "merged_data", merge("A1:B1")), "merged_block": saved(office, "merged_block", merge("B2:C3")),
        "linked": saved(office, "linked", link), "view": saved(office, "view", view),
        "two": saved(office, "two", lambda made: made.create_sheet("Other")), "named": saved(office, "named", lambda made: setattr(made.active, "title", "A b")),
    }
    styles = [["bgcolor"], ["fgcolor"], ["fill_type"], ["font_bold"], ["font_color"], ["font_name", "font_size"], ["number_format"], ["hyperlink"], ["merge"], ["font_italic", "font_underline"]]
    for name, file in files.items():
        for other in ["plain", name, "red", "merged"]:
            for props in styles:
                if other in ("plain", name) or props in (["bgcolor"], ["merge"], ["fill_type"]):
                    pair_case(f"{name} {other}", file, files[other], "style", props=props)
        for other in ["plain", "view"]:
            for kind, options in [("sheet_data", {}), ("row_props", {"props": ["hidden"]}), ("row_props", {"props": ["height"]}), ("col_props", {"props": ["hidden"]}), ("col_props", {"props": ["width"]}), ("col_props", {"props": ["width", "hidden", "collapsed", "min", "max"]})]:
                pair_case(f"{name} {other}", file, files[other], kind, **options)
        case(name, "compare_table", file, files["plain"], rules=[{"type": "sheet_name"}])
        for place in ["A1", "B2", "A6", "E5", "H9"]:
            for prop, ref in [("bgcolor", "FFFF0000"), ("fgcolor", "FFFF0000"), ("bgcolor", "00000000"), ("font_bold", True), ("font_bold", False), ("font_color", "FFFF0000"), ("merge", True), ("hyperlink", "https://a.com/x"), ("font_name", "Arial"), ("font_size", 9), ("number_format", "General")]:
                cell_case(name, file, place, **{prop: {"method": "eq", "ref": ref}})


def values(office, plain):
    codes = ["0.00", "#,##0", '"$"#,##0.00', "0%", "0.0%", "yyyy-mm-dd", "dd/mm/yyyy", "[h]:mm", "h:mm AM/PM", "@", "0.00E+00", "# ?/?", "#,##0;[Red]-#,##0", "mmm d", '0" pcs"', "General"]

    def formatted(made):
        for at, code in enumerate(codes):
            made.active.cell(at + 1, 8, 45413.75).number_format = code

    def formulas(made):
        page = made.active
        texts = ["=SUM(B2:B5)", "=AVERAGE(B2:B5)", '=IF(B2>100,"big","small")', "=B2/0", '=VLOOKUP("Bob",A2:B5,2,0)', '=""', "=A2&\" \"&E2", "=TODAY()>0", "=ROUND(B4,2)", "=COUNTIF(E2:E5,\"x\")", "=C2+1", "=TRUE()", "=NA()", "=B9", "=MAX(B2:B5)-MIN(B2:B5)", "=1/3"]
        for at, text in enumerate(texts):
            page.cell(at + 1, 7, text)

    def written(made):
        """What the formulas give, as plain values."""
        page = made.active
        for at, value in enumerate([236.623456, 59.155864, "big", "#DIV/0!", 80, None, "Ann x", True, 43.12, 2, DAY + datetime.timedelta(days=1), True, "#N/A", 0, 127.5, 1 / 3]):
            page.cell(at + 1, 7, value)

    odd = [["a", "a", None, 1, True], ["1", 1, 1.0, "01", False], [" x ", "x\ny", "é", "<&>", 1e300], [None, None, None, None, None], [datetime.time(3, 4), DAY, datetime.timedelta(hours=30), "2024-05-01", 1e-9]]
    files = {
        "formats": saved(office, "formats", formatted), "formulas": saved(office, "formulas", formulas), "written": saved(office, "written", written), "odd": saved(office, "odd", None, odd), "values": plain, "turned": saved(office, "turned", None, [ROWS[0], *ROWS[:0:-1]]),
        "rounded": saved(office, "rounded", lambda made: setattr(made.active["B4"], "value", 43.12345601)), "near": saved(office, "near", lambda made: setattr(made.active["B4"], "value", 43.1239)), "text_number": saved(office, "text_number", lambda made: setattr(made.active["B3"], "value", "80")),
    }
    for name, file in files.items():
        for other in files:
            case(f"{name} {other}", "compare_table", file, files[other], rules=DATA)
            for kind in ["exact_match", "fuzzy_match", "includes", "included_by"]:
                rules = [{"range": ["A1:E5"], "type": kind}]
                if other in ("values", "written"):
                    pair_case(f"{name} {other}", file, files[other], "sheet_fuzzy", rules=rules)
        pair_case(name, file, files["formulas"], "sheet_fuzzy", rules=[{"range": ["G1:G16"], "type": "exact_match"}])
        case(name, "compare_table", file, files["values"], rules=[{"type": "sheet_data", "precision": 8, **PAIR}])
    for at, code in enumerate(codes):
        cell_case("formats", files["formats"], f"H{at + 1}", number_format={"method": "eq", "ref": code})
        cell_case("formats", files["formats"], f"H{at + 1}", value={"method": "approx:0.01", "ref": 45413.75})
    for at in range(16):
        for name in ["formulas", "written"]:
            for method, ref in [("approx:0.001", 59.155864), ("eq", "big"), ("eq", None), ("ne", ""), ("re", "^A"), ("gt", 1)]:
                cell_case(name, files[name], f"G{at + 1}", value={"method": method, "ref": ref})
    for place in ["A2", "B2", "C2", "D2", "E2", "C3", "D3", "E3", "A5", "B5", "C5", "D5", "E5", "A4"]:
        for method, ref in [("eq", "1"), ("eq", 1), ("eq", None), ("approx:0.001", 1), ("re.S", "x.y"), ("eq", "<&>"), ("ge", 1)]:
            cell_case("odd", files["odd"], place, value={"method": method, "ref": ref})


def conditions(office, plain):
    def rule(made_rule, where="B2:B5"):
        return lambda made: made.active.conditional_formatting.add(where, made_rule)

    def text(kind, operator, formula):
        return rule(Rule(type=kind, operator=operator, text="x", dxf=DifferentialStyle(fill=RED_IF["fill"]), formula=[formula]), "E2:E5")

    def paint(*places):
        def change(made):
            for place in places:
                made.active[place].fill = RED

        return change

    def two(made):
        made.active.conditional_formatting.add("B2:B5", CellIsRule(operator="greaterThan", formula=["50"], **RED_IF))
        made.active.conditional_formatting.add("B2:B5", CellIsRule(operator="lessThan", formula=["0"], fill=PatternFill(bgColor="FF00FF00")))

    made = {
        "greater": rule(CellIsRule(operator="greaterThan", formula=["50"], **RED_IF)), "between": rule(CellIsRule(operator="between", formula=["0", "100"], **RED_IF)), 
        "equal_text": rule(CellIsRule(operator="equal", formula=['"x"'], **RED_IF), "E2:E5"), "formula": rule(FormulaRule(formula=["B2>50"], **RED_IF)), "fixed": rule(FormulaRule(formula=["$B2>50"], **RED_IF), "A2:E5"), "and": rule(FormulaRule(formula=["AND(B2>50,B2<100)"], **RED_IF)), "two": two,
        "contains": text("containsText", "containsText", 'NOT(ISERROR(SEARCH("x",E2)))'), "scale": rule(ColorScaleRule(start_type="min", start_color="FFFF0000", end_type="max", end_color="FF00FF00")),
        "duplicates": rule(Rule(type="duplicateValues", dxf=DifferentialStyle(fill=RED_IF["fill"])), "E2:E5"),
        "painted": paint("B2", "B3"), "painted_text": paint("E2", "E4"),
    }
    files = {"none": plain} | {name: saved(office, f"if_{name}", change) for name, change in made.items()}
    for one in files:
        for other in dict.fromkeys(["none", "greater", "formula", "painted", "painted_text", one]):
            for props in [["bgcolor"], ["fgcolor"], ["fill_type", "font_color"]]:
                pair_case(f"if {one} {other}", files[one], files[other], "style", props=props)


def filters(office, plain):
    def filtered(values=None, custom=None, hide=()):
        def change(made):
            made.active.auto_filter.ref = "A1:E5"
            columns = made.active.auto_filter.filterColumn
            if values:
                columns.append(FilterColumn(colId=0, filters=Filters(filter=values)))
            if custom:
                columns.append(FilterColumn(colId=1, customFilters=CustomFilters(_and=custom[0], customFilter=[CustomFilter(operator=o, val=v) for o, v in custom[1]])))
            for row in hide:
                made.active.row_dimensions[row].hidden = True

        return change

    def choices(made):
        check = DataValidation(type="list", formula1='"Pass,Fail,Held"', allow_blank=True)
        whole = DataValidation(type="whole", operator="between", formula1="1", formula2="10", showErrorMessage=True, error="no", errorTitle="t")
        check.add("F2:F5")
        whole.add("G2:G5")
        made.active.add_data_validation(check)
        made.active.add_data_validation(whole)

    made = {
        "range": filtered(), "values": filtered(["Ann", "Cid"], None, (3, 5)), "custom": filtered(None, (False, [("greaterThan", "50")]), (4, 5)), "both": filtered(None, (True, [("greaterThan", "50"), ("lessThan", "100")]), (2, 4, 5)), "either": filtered(None, (False, [("greaterThan", "100"), ("lessThan", "0")]), (3, 4)),
    }
    files = {"none": plain} | {name: saved(office, f"filter_{name}", change) for name, change in made.items()}
    for one in files:
        for other in files:
            pair_case(f"{one} {other}", files[one], files[other], "filter")
            pair_case(f"{one} {other}", files[one], files[other], "row_props", props=["hidden"])
    checked = saved(office, "checked", choices)
    listed = {"type": {"method": "eq", "ref": "list"}, "formula1": {"method": "str_list_eq", "ref": ["Pass", "Fail", "Held"]}}
    whole = {"type": {"method": "eq", "ref": "whole"}, "formula2": {"method": "eq", "ref": "10"}}
    for name, file in [("checked", checked), ("none", files["none"])]:
        for props in [[listed], [whole], [listed, whole], [whole, listed, listed], [{"ranges": {"method": "spreadsheet_range", "ref": ["F2:F5", "F2:F9"]}}], [{**listed, "ranges": {"method": "spreadsheet_range", "ref": ["F3:F4", "F1:F9"]}}, whole], [{**listed, "formula1": {"method": "str_set_eq", "ref": ["Held", "Pass", "Fail"]}}, whole], [{"allowBlank": {"method": "eq", "ref": True}}], []]:
            case(name, "compare_table", file, rules=[{"type": "data_validation", "sheet_idx": 0, "dv_props": props}])


def charts(office, plain):
    def drawn(kind=BarChart, title="Sales", legend="r", axes=None, direction=None, two=False):
        def add(made):
            page, chart = made.active, kind()
            chart.title = title
            if direction:
                chart.type = direction
            if axes:
                chart.x_axis.title, chart.y_axis.title = axes
            if legend:
                chart.legend.position = legend
            else:
                chart.legend = None
            if kind is ScatterChart:
                chart.series.append(Series(Reference(page, min_col=4, min_row=2, max_row=5), Reference(page, min_col=2, min_row=2, max_row=5), title="s"))
            else:
                for each in [2, 4] if two else [2]:
                    chart.add_data(Reference(page, min_col=each, min_row=1, max_row=5), titles_from_data=True)
                chart.set_categories(Reference(page, min_col=1, min_row=2, max_row=5))
            page.add_chart(chart, "H2")

        return add

    made = {
        "bar": drawn(), "flat": drawn(direction="bar"), "line": drawn(LineChart), "pie": drawn(PieChart), "scatter": drawn(ScatterChart), "title": drawn(title="Sale"), "untitled": drawn(title=None), "no_legend": drawn(legend=None), "axes": drawn(axes=("Name", "Euro")), "two": drawn(two=True),
    }
    files = {"none": plain} | {name: saved(office, f"chart_{name}", change) for name, change in made.items()}
    for one in files:
        for other in dict.fromkeys(["bar", "axes", one]):
            for props in [["type"], ["title"], ["legend"], ["xtitle", "ytitle"], ["direction"], ["width", "height"], ["anchor"], ["type", "title", "legend", "xtitle", "ytitle", "direction"], []]:
                pair_case(f"{one} {other}", files[one], files[other], "chart", chart_props=props)


SPACES = " ".join(
    f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{long}:1.0"'
    for short, long in [("office", "office"), ("text", "text"), ("style", "style"), ("fo", "xsl-fo-compatible"), ("table", "table"), ("draw", "drawing"), ("number", "datastyle"), ("of", "of")]
) + ' xmlns:calcext="urn:org:documentfoundation:names:experimental:calc:xmlns:calcext:1.0" xmlns:xlink="http://www.w3.org/1999/xlink"'


def flat_cell(value):
    if isinstance(value, str):
        return f'<table:table-cell office:value-type="string"><text:p>{value}</text:p></table:table-cell>'
    return f'<table:table-cell office:value-type="float" office:value="{value}"/>'


def flat_sheets(office):
    """What openpyxl cannot make: pivot tables and sparklines."""
    grid = [["City", "Kind", "Sum"], ["Oslo", "a", 4], ["Rome", "b", 5], ["Oslo", "b", 6], ["Rome", "a", 7]]
    rows = "".join("<table:table-row>" + "".join(map(flat_cell, row)) + "</table:table-row>" for row in grid)

    def flat(name, in_sheet="", after="", sheets=""):
        text = (
            f'<?xml version="1.0" encoding="UTF-8"?><office:document {SPACES} office:version="1.3" office:mimetype="application/vnd.oasis.opendocument.spreadsheet"><office:body><office:spreadsheet>'
            f'<table:table table:name="Data"><table:table-column table:number-columns-repeated="3"/>{rows}{in_sheet}</table:table>{sheets}{after}</office:spreadsheet></office:body></office:document>'
        )
        return office.flat(f"flat_{name}", "fods", text, "xlsx")

    def pivot(name, fields, function="sum", place="Pivot.A1", extra="", page=None, total="both"):
        def field(column, orientation):
            uses = f' table:function="{function}"' if orientation == "data" else ""
            level = '<table:data-pilot-level table:show-empty="false"/>' if orientation != "data" else ""
            return f'<table:data-pilot-field table:source-field-name="{column}" table:orientation="{orientation}"{uses}>{level}</table:data-pilot-field>'

        inner = "".join(field(column, orientation) for column, orientation in fields)
        tables = (
            f'<table:data-pilot-tables><table:data-pilot-table table:name="P" table:application-data="" table:grand-total="{total}" table:target-range-address="{place}:{place}" table:show-filter-button="false"{extra}>'
            f'<table:source-cell-range table:cell-range-address="Data.A1:Data.C5"/>{inner}</table:data-pilot-table></table:data-pilot-tables>'
        )
        other = '<table:table table:name="Pivot"><table:table-column/><table:table-row><table:table-cell/></table:table-row></table:table>'
        return flat(name, "", tables, other)

    pivots = {
        "row": pivot("row", [("City", "row"), ("Sum", "data")]), "count": pivot("count", [("City", "row"), ("Sum", "data")], "count"), "column": pivot("column", [("City", "row"), ("Kind", "column"), ("Sum", "data")]), "both": pivot("both", [("City", "row"), ("Kind", "row"), ("Sum", "data")]),
        "paged": pivot("paged", [("City", "row"), ("Kind", "page"), ("Sum", "data")]), "no_total": pivot("no_total", [("City", "row"), ("Sum", "data")], total="none"), "none": flat("none"),
    }
    for one in pivots:
        for other in dict.fromkeys(["row", "column", one]):
            for props in [["col_fields", "filter", "row_fields", "data_fields"], ["row_fields"], ["data_fields"], ["filter"], ["location"], ["show_total", "show_empty_row", "show_empty_col", "show_headers"], ["name"]]:
                rule = {"type": "pivot_table", "sheet_idx0": "RNPivot" if one != "none" else 0, "sheet_idx1": "ENPivot", "pivot_props": props}
                if other != "none":
                    case(f"{one} {other}", "compare_table", pivots[one], pivots[other], rules=[rule])
            case(f"{one} {other}", "compare_table", pivots[one], pivots[other], rules=[{"type": "sheet_data", "sheet_idx0": 1, "sheet_idx1": "EI1"}])

    def spark(name, *lines, kind="line"):
        inner = "".join(f'<calcext:sparkline calcext:cell-address="{at}" calcext:data-range="{of}"/>' for of, at in lines)
        group = f'<calcext:sparkline-groups><calcext:sparkline-group calcext:id="{{1C5C5DE0-3C09-4CB3-A3EC-9E763301EC82}}" calcext:type="{kind}"><calcext:sparklines>{inner}</calcext:sparklines></calcext:sparkline-group></calcext:sparkline-groups>'
        return flat(f"spark_{name}", group if lines else "")

    sparks = {"one": spark("one", ("Data.C2:Data.C5", "Data.E2")), "same": spark("same", ("Data.C2:Data.C5", "Data.E2"), kind="column"), "other": spark("other", ("Data.C2:Data.C4", "Data.E2")), "two": spark("two", ("Data.C2:Data.C5", "Data.E2"), ("Data.C2:Data.C3", "Data.E3")), "none": pivots["none"]}
    for one in sparks:
        for other in ["one", "two", "none"]:
            pair_case(f"{one} {other}", sparks[one], sparks[other], "sparkline")
