"""Makes the files of the example tasks, byte for byte the same every time: python3 make_files.py"""

import pathlib
import struct
import zipfile
import zlib

FILES = pathlib.Path(__file__).parent / "files"
MIME = "application/vnd.openxmlformats-officedocument."
XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
PACKAGE = "http://schemas.openxmlformats.org/package/2006/"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def package(name, main, kind, parts):
    """An office file: its main part, the content type of that, and all parts."""
    types = f'<Types xmlns="{PACKAGE}content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    types += '<Default Extension="xml" ContentType="application/xml"/>'
    types += "".join(f'<Override PartName="/{path}" ContentType="{MIME}{of}"/>' for path, of in kind.items()) + "</Types>"
    relation = f'<Relationship Id="rId1" Type="{OFFICE}/officeDocument" Target="{main}"/>'
    parts = {
        "[Content_Types].xml": types,
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}relationships">{relation}</Relationships>',
        **parts,
    }
    with zipfile.ZipFile(FILES / name, "w", zipfile.ZIP_DEFLATED) as file:
        for path, text in parts.items():
            file.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), XML + text, zipfile.ZIP_DEFLATED)


def sheet(name, rows):
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"

    def cell(column, row, value):
        at = f"{'ABC'[column]}{row + 1}"
        if isinstance(value, tuple):
            return f'<c r="{at}"><f>{value[0]}</f><v>{value[1]}</v></c>'
        if isinstance(value, str):
            return f'<c r="{at}" t="inlineStr"><is><t>{value}</t></is></c>'
        return f'<c r="{at}"><v>{value}</v></c>'

    body = "".join(
        f'<row r="{row + 1}">' + "".join(cell(column, row, value) for column, value in enumerate(values) if value is not None) + "</row>"
        for row, values in enumerate(rows)
    )
    package(
        name,
        "xl/workbook.xml",
        {"xl/workbook.xml": "spreadsheetml.sheet.main+xml", "xl/worksheets/sheet1.xml": "spreadsheetml.worksheet+xml"},
        {
            "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{OFFICE}"><sheets><sheet name="Sales" sheetId="1" r:id="rId1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}relationships"><Relationship Id="rId1" Type="{OFFICE}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{body}</sheetData></worksheet>',
        },
    )


def text(name, paragraphs):
    main = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = "".join(f"<w:p><w:r><w:t>{paragraph}</w:t></w:r></w:p>" for paragraph in paragraphs)
    package(
        name,
        "word/document.xml",
        {"word/document.xml": "wordprocessingml.document.main+xml"},
        {"word/document.xml": f'<w:document xmlns:w="{main}"><w:body>{body}</w:body></w:document>'},
    )


def picture(name, width, height):
    """A red square left of the middle on a blue ground that becomes lighter downwards."""

    def pixel(x, y):
        inside = width // 8 < x < width // 3 and height // 4 < y < 3 * height // 4
        return (200, 30, 30) if inside else (40, 60 + 160 * y // height, 200)

    rows = b"".join(b"\0" + bytes(value for x in range(width) for value in pixel(x, y)) for y in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    (FILES / name).write_bytes(png)


FILES.mkdir(exist_ok=True)
SALES = [["Month", "Sales"], ["January", 120], ["February", 80], ["March", 140]]
sheet("sales.xlsx", SALES)
sheet("sales-gold.xlsx", SALES + [[None, ("SUM(B2:B4)", 340)]])
LETTER = ["Dear Ms Okafor,", "thank you for your order."]
text("letter.docx", LETTER)
text("letter-gold.docx", LETTER + ["Kind regards"])
picture("flag.png", 240, 160)
(FILES / "page.html").write_text("<!doctype html>\n<title>Timetable</title>\n<h1>Timetable</h1>\n<p>The train leaves at 9:41.</p>\n")
