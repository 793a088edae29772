"""Makes the golden cases of HTML, books, YAML, images in PDF documents, videos and the text of images.

Usage: python make_media_cases.py OUT OLD NEW, as make_cases.py, whose versions it shares, with PyPDF2, lxml 5.3.0, beautifulsoup4 4.15.0,
PyYAML 6.0.3, PyMuPDF 2.0, ImageHash 4.3 and opencv-python-headless 4.10.0. Writes media_cases.json and files with the
prefix "media_". The text of images is read by a model that is not here: only its cases without one are made.
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path

import cv2
import fitz
import make_cases as base
import numpy as np
from make_cases import ABSENT, FILES, archive, case, put
from PIL import Image, ImageDraw, ImageFont

COPIES = tempfile.TemporaryDirectory()
original, metrics_of = base.with_paths, base.metrics_of


def pages():
    """As Calc exports a sheet, with what may differ between two exports."""
    head = '<!DOCTYPE html PUBLIC "-//W3C//DTD HTML 4.0 Transitional//EN">\n<html>\n<head>\n\t<meta http-equiv="content-type" content="text/html; charset=utf-8"/>\n\t<title></title>\n\t<style type="text/css">\n\t\tbody,div { font-family:"Liberation Sans"; }\n\t</style>\n</head>\n\n<body>\n'
    rows = '<table cellspacing="0" border="0">\n\t<colgroup width="85"></colgroup>\n\t<tr>\n\t\t<td height="17" align="left"><b>Year</b></td>\n\t\t<td align="right" sdval="2021" sdnum="1033;">2021</td>\n\t</tr>\n\t<tr>\n\t\t<td class="a b" bgcolor="#FFFFFF"><font color="#000000">caf&eacute; &amp; t&egrave;</font><br></td>\n\t\t<td align="right" sdval="1.5" sdnum="1033;0;0.0">1.5</td>\n\t</tr>\n</table>\n<!-- ************************************************************************** -->\n'
    tail = "</body>\n\n</html>\n"
    gold = head + rows + tail
    variants = {
        "gold": gold, "sdnum": gold.replace('sdnum="1033;"', 'sdnum="2057;"'), "sdval": gold.replace('sdval="2021"', 'sdval="2022"'), "text": gold.replace(">2021<", ">2022<"), "entity": gold.replace("&eacute;", "é").replace("&egrave;", "&#232;"),
        "space": gold.replace("\n\t\t<td", "\n      <td"), "one_line": gold.replace("\n", ""), "no_space": gold.replace("\n\t", ""), "class_space": gold.replace('"a b"', '" a   b "'), "class_order": gold.replace('"a b"', '"b a"'), "upper": gold.replace("<td", "<TD").replace("</td", "</TD"),
        "unclosed": gold.replace("</td>", "").replace("</tr>", ""), "attribute_order": gold.replace('height="17" align="left"', 'align="left" height="17"'), "unquoted": gold.replace('align="left"', "align=left"), "more": gold.replace("</table>", "</table><p>more</p>"), "shorter": head + rows, "start": head + rows[:200],
        "title": gold.replace("<title></title>", "<title>A</title>"), "comment": gold.replace("<!-- *", "<!-- +"), "doctype": gold.replace("4.0 Transitional", "4.01"), "no_doctype": gold.split("\n", 1)[1], "html5": gold.replace(head.split("\n", 1)[0], "<!DOCTYPE html>"), "style": gold.replace("Liberation Sans", "Arial"),
        "b_to_strong": gold.replace("<b>", "<strong>").replace("</b>", "</strong>"), "nested": gold.replace("<b>Year</b>", "<b>Year"), "twice": gold.replace('border="0"', 'border="0" border="1"'), "extra_end": gold.replace("</tr>", "</td></tr>"), "slash": gold.replace("<br>", "<br/>"), "crlf": gold.replace("\n", "\r\n"), "empty": "", "plain": "just text", "table_only": rows,
    }
    files = {name: put(f"media_{name}.html", text) for name, text in variants.items()}
    files["latin"] = put("media_latin.html", gold.replace("&eacute;", "é").encode("latin-1"))
    for name, file in files.items():
        case(f"html {name}", "compare_htmls", file, files["gold"])
        case(f"html gold {name}", "compare_htmls", files["gold"], file)
        case(f"html {name} without sdnum", "compare_htmls", file, files["gold"], ignore_sdnum=True)
        case(f"html {name} itself", "compare_htmls", file, file)
    case("html sdnum and text", "compare_htmls", put("media_both.html", variants["sdnum"].replace(">2021<", ">7<")), files["gold"], ignore_sdnum=True)
    case("html absent", "compare_htmls", ABSENT, files["gold"])
    case("html none", "compare_htmls", None, files["gold"])


def books():
    toc = '<?xml version="1.0" encoding="utf-8"?>\n<ncx>\n<head>\n<meta name="dtb:uid" content="1"/>\n</head>\n<docTitle><text>Pass Through</text></docTitle>\n<navMap>\n<navPoint id="n1">\n<navLabel><text>One</text></navLabel>\n</navPoint>\n</navMap>\n</ncx>\n'
    package = '<?xml version="1.0" encoding="utf-8"?>\n<package>\n<metadata>\n<dc:title>Pass Through</dc:title>\n<dc:identifier id="id">urn:uuid:1</dc:identifier>\n<dc:language>en</dc:language>\n</metadata>\n</package>\n'
    page = "<?xml version='1.0' encoding='utf-8'?>\n<html xmlns=\"http://www.w3.org/1999/xhtml\">\n  <head>\n    <title>Chapter {0}</title>\n    <meta http-equiv=\"Content-Type\" content=\"text/html; charset=utf-8\"/>\n  </head>\n  <body class=\"calibre\">\n<p>Text of {0}: caf\u00e9 \u2026</p>\n<p>Second line of {0}</p>\n<h2>End {0}</h2>\n  </body>\n</html>\n"
    parts = {"mimetype": "application/epub+zip", "toc.ncx": toc, "content.opf": package, "ch1.html": page.format(1), "ch2.html": page.format(2)}
    plain = "<html><head><title>{0}</title></head><body><p>\u00c5 text of {0}</p>\n<div><b>x</b><i>y</i></div></body></html>"
    changed = {
        "gold": {}, "other_ids": {"content.opf": package.replace("uuid:1", "uuid:2"), "toc.ncx": toc.replace('navPoint id="n1"', 'navPoint id="x"')}, "title": {"content.opf": package.replace("Pass Through", "Other")}, "line": {"ch2.html": page.format(2).replace("Second", "Third")}, "page": {"ch2.html": page.format(3)},
        "more": {"ch3.html": page.format(3)}, "fewer": {"ch2.html": None}, "no_toc": {"toc.ncx": None}, "no_package": {"content.opf": None}, "only_pages": {"toc.ncx": None, "content.opf": None}, "lines": {"ch1.html": page.format(1).replace("\n", "")}, "white": {"ch1.html": page.format(1).replace("\n", "\n  ")},
        "undeclared": {"ch1.html": plain.format(1)}, "piece": {"ch1.html": "<p>a</p><p>b</p>"}, "one": {"ch1.html": "<p>a</p>"}, "spans": {"ch1.html": "a<b>c</b>"}, "declared": {"ch1.html": plain.format(1).replace("<title>", '<meta charset="utf-8"><title>')}, "empty_page": {"ch1.html": ""}, "folder": {"OEBPS/ch1.html": page.format(1)}, "no_utf8": {"ch1.html": b"<p>\xff</p>"}, "xhtml": {"ch1.html": None, "ch1.xhtml": page.format(1)},
    }
    files = {}
    for name, changes in changed.items():
        made = {part: content for part, content in {**parts, **changes}.items() if content is not None}
        files[name] = archive(f"media_{name}.epub", made)
    files["no_archive"] = put("media_no_archive.epub", "text")
    for name, file in files.items():
        case(f"book {name}", "compare_epub", file, files["gold"])
        case(f"book gold {name}", "compare_epub", files["gold"], file)
        case(f"book {name} undeclared", "compare_epub", file, files["undeclared"])
    case("book none", "compare_epub", None, files["gold"])
    case("book absent", "compare_epub", ABSENT, files["gold"])


def settings():
    texts = {
        "site": '# Site\nlocale: "en-US"\nname: &name "Test Account"\nurl: http://x.org/a\nauthor:\n  name: *name\n  email: Test@gmail.com\n  bio: >-\n    a\n    b\n  old: 010\n  quoted: \'010\'\ntags: [a, yes, ~, 3, 0x1f, 1_000, 1:30, 1e3, 1.5, .5]\nenabled: on\ndate: 2020-01-02\nbase: &base {k: 1, l: 2}\nmore:\n  <<: *base\n  l: 3\n1: one\nlist:\n  - x: 1\n  - y\n',
        "damaged": "a: [1\nb: 2\n", "empty": "", "comment": "# nothing\n", "list": "- a\n- b\n", "text": "just text\n", "two": "a: 1\n---\na: 2\n", "tab": "a:\n\tb: 1\n", "tagged": "a: !!str 5\nb: !!int '7'\n", "unknown": "a: !thing 5\n", "windows": "a: 1\r\nb: x\r\n", "twice": "a: 1\na: 2\n",
    }
    rules = [
        (["name"], "eq", "Test Account"), (["author", "name"], "eq", "Test Account"), (["author", "name"], "eq", "Other"), (["author", "email"], "re", "gmail"), (["author", "bio"], "eq", "a b"), (["author", "old"], "eq", 8), (["author", "quoted"], "eq", "010"), (["enabled"], "eq", True), (["tags", 1], "eq", True), (["tags", 2], "eq", None), (["tags", 4], "eq", 31),
        (["tags", 5], "eq", 1000), (["tags", 6], "eq", 90), (["tags", 7], "eq", "1e3"), (["tags", 8], "gt", 1), (["tags", 9], "eq", 0.5), (["date"], "eq", "2020-01-02"), (["more", "k"], "eq", 1), (["more", "l"], "eq", 3), (["1"], "eq", "one"), (["list", 0, "x"], "eq", 1), (["list", 5], "eq", 1), (["a"], "eq", 1), (["a"], "eq", "5"), (["a"], "eq", 2), (["b"], "eq", 7), (["b"], "eq", "x"), ([0], "eq", "a"), (["name", "x"], "eq", 1), (["url"], "eq", "http://x.org/a"),
    ]
    for name, text in texts.items():
        file = put(f"media_{name}.yaml", text)
        for key, method, ref in rules:
            rule = {"key": key, "method": method, "ref": ref}
            case(f"yaml {name} {key} {method} {ref}", "check_json", file, {"expect": [rule]}, is_yaml=True)
        case(f"yaml {name} not", "check_json", file, {"unexpect": [{"key": ["name"], "method": "eq", "ref": "x"}]}, is_yaml=True)
    case("yaml none", "check_json", None, {"expect": []}, is_yaml=True)
    case("yaml absent", "check_json", ABSENT, {"expect": []}, is_yaml=True)


def picture(kind, width=80, height=60):
    rows, columns = np.mgrid[0:height, 0:width]
    made = {
        "waves": [columns * 3 % 256, rows * 4 % 256, (rows + columns) * 2 % 256], "stripes": [(columns // 8 % 2) * 200 + 20, rows * 2, columns], "disc": [((rows - 30) ** 2 + (columns - 40) ** 2 < 400) * 220 + 10, columns, rows * 3 % 256],
    }[kind]
    return Image.fromarray(np.stack(made, axis=-1).astype(np.uint8))


def documents():
    def encoded(image, kind, **options):
        buffer = io.BytesIO()
        image.save(buffer, kind, **options)
        return buffer.getvalue()

    def pdf(name, *pages, size=(200, 150), box=(20, 20, 180, 140), text=None):
        made = fitz.open()
        for files in pages:
            page = made.new_page(width=size[0], height=size[1])
            for at, file in enumerate(files):
                page.insert_image(fitz.Rect(*box) + (at, at, at, at), stream=file)
            if text:
                page.insert_text((20, 15), text, fontsize=9)
        made.save(FILES / f"media_{name}.pdf", garbage=4, deflate=True, no_new_id=True)
        return {"file": f"files/media_{name}.pdf"}

    waves, stripes, disc = (picture(kind) for kind in ("waves", "stripes", "disc"))
    png, jpeg = encoded(waves, "PNG"), encoded(waves, "JPEG", quality=90)
    brighter = waves.point(lambda value: min(255, value + 12))
    files = {
        "png": pdf("png", [png]), "same": pdf("same", [png]), "jpeg": pdf("jpeg", [jpeg]), "small_jpeg": pdf("small_jpeg", [encoded(waves, "JPEG", quality=40)]), "other": pdf("other", [encoded(stripes, "PNG")]), "disc": pdf("disc", [encoded(disc, "JPEG")]), "brighter": pdf("brighter", [encoded(brighter, "PNG")]), "turned": pdf("turned", [encoded(waves.rotate(180), "PNG")]),
        "half": pdf("half", [encoded(waves.resize((40, 30)), "PNG")]), "grey": pdf("grey", [encoded(waves.convert("L"), "PNG")]), "palette": pdf("palette", [encoded(waves.quantize(32), "PNG")]), "bits": pdf("bits", [encoded(disc.convert("L").point(lambda value: 255 if value > 128 else 0).convert("1"), "PNG")]), "moved": pdf("moved", [png], box=(10, 20, 170, 140)), "wide": pdf("wide", [png], size=(220, 150)),
        "text": pdf("text", [png], text="Receipt"), "only_text": pdf("only_text", [], text="Receipt"), "other_text": pdf("other_text", [], text="Other"), "empty": pdf("empty", []), "two": pdf("two", [png], [jpeg]), "two_other": pdf("two_other", [png], [encoded(stripes, "PNG")]), "on_one": pdf("on_one", [png, encoded(stripes, "PNG")]), "alpha": pdf("alpha", [encoded(waves.convert("RGBA"), "PNG")]),
    }
    waves.save(FILES / "media_pillow.pdf", "PDF", creationDate=None, modDate=None)
    files["pillow"] = {"file": "files/media_pillow.pdf"}
    files["damaged"] = put("media_damaged.pdf", b"%PDF-1.4\nnothing")
    for name, file in files.items():
        for gold in ["png", "jpeg", "pillow", "two", "text", "only_text"]:
            case(f"images {name} {gold}", "compare_pdf_images", file, files[gold])
    case("images none", "compare_pdf_images", None, files["png"])
    case("images absent", "compare_pdf_images", ABSENT, files["png"])
    case("text none", "compare_image_text", None, {"type": "text", "text": "ls"})
    case("text absent", "compare_image_text", ABSENT, {"type": "text", "text": "ls"})
    case("text damaged", "compare_image_text", put("media_damaged.png", b"\x89PNG"), {"type": "text", "text": "ls"})


def screens():
    """Terminals for the test that reads text with tesseract; no cases, because the original's reader is not here."""
    for name, paper, ink in [("light", 255, 0), ("dark", 30, 240)]:
        screen = Image.new("L", (420, 110), paper)
        text = "user@vm:~$ ls\nDesktop Documents Music"
        ImageDraw.Draw(screen).multiline_text((14, 12), text, fill=ink, font=ImageFont.load_default(size=22), spacing=10)
        screen.quantize(8).save(FILES / f"media_terminal_{name}.png", optimize=True)


def videos():
    def video(name, frames):
        height, width = 48, 64
        writer = cv2.VideoWriter(str(FILES / f"media_{name}.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10, (width, height))
        for image in frames:
            writer.write(cv2.cvtColor(np.array(image.resize((width, height))), cv2.COLOR_RGB2BGR))
        writer.release()
        return {"file": f"files/media_{name}.avi"}

    waves, stripes = picture("waves"), picture("stripes")
    frames = [Image.fromarray(np.roll(np.array(waves), 2 * at, axis=1)) for at in range(12)]
    files = {
        "gold": video("gold", frames), "turned": video("turned", [one.rotate(180) for one in frames]), "shorter": video("shorter", frames[:11]), "brighter": video("brighter", [one.point(lambda value: min(255, value + 8)) for one in frames]), "few": video("few", [stripes] * 5 + frames[5:]), "many": video("many", [stripes] * 6 + frames[6:]),
        "one": video("one", frames[:1]), "no_video": put("media_no_video.avi", "text"),
    }
    for name, file in files.items():
        case(f"video {name}", "compare_videos", file, files["gold"])
        case(f"video gold {name}", "compare_videos", files["gold"], file)
        case(f"video {name} itself", "compare_videos", file, file)
        for limit, threshold in [(3, 5), (11, 5), (100, 0), (100, 20), (0, 5)]:
            case(f"video {name} {limit} {threshold}", "compare_videos", file, files["gold"], max_frames_to_check=limit, threshold=threshold)
    case("video absent", "compare_videos", ABSENT, files["gold"])
    case("video none", "compare_videos", None, files["gold"])


class Unchanged:
    """The older evaluator reads and writes documents with borb before it compares them, and borb's writer fails on most: here they stay as they are."""

    @staticmethod
    def loads(file):
        return file.read()

    @staticmethod
    def dumps(file, content):
        file.write(content)


def without_borb(root):
    metrics = metrics_of(root)
    sys.modules["desktop_env.evaluators.metrics.chrome"].PDF = Unchanged
    return metrics


def with_copies(value):
    """The evaluators write over documents and beside books: each call gets copies."""
    path = original(value)
    if isinstance(value, dict) and set(value) == {"file"} and Path(path).exists():
        return str(shutil.copy(path, Path(tempfile.mkdtemp(dir=COPIES.name)) / Path(path).name))
    return path


def main():
    FILES.mkdir(parents=True, exist_ok=True)
    for make in [pages, books, settings, documents, screens, videos]:
        make()
    base.with_paths, base.metrics_of = with_copies, without_borb
    base.write_scored("media_cases.json")


main()
