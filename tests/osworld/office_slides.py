"""Slides that LibreOffice saves, and their cases; see make_office_cases.py."""

import base64
import io

import pptx
from make_cases import case
from PIL import Image
from pptx.dml.color import RGBColor
from pptx.enum.text import PP_ALIGN
from pptx.util import Pt

SPACES = " ".join(
    f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{long}:1.0"'
    for short, long in [("office", "office"), ("text", "text"), ("style", "style"), ("fo", "xsl-fo-compatible"), ("draw", "drawing"), ("svg", "svg-compatible"), ("presentation", "presentation"), ("table", "table"), ("smil", "smil-compatible")]
) + ' xmlns:xlink="http://www.w3.org/1999/xlink"'

RUNS = {
    "strike": 'style:text-line-through-style="solid"',
}
PARAGRAPHS = {"centre": 'fo:text-align="center"'}
PAGES = {
    "green": 'draw:fill="solid" draw:fill-color="#00ff00"', "dissolve": 'presentation:transition-type="automatic" smil:type="dissolve"', "wipe": 'smil:type="barWipe" smil:subtype="leftToRight"',
}


def picture(color, size=(12, 9)):
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, "PNG")
    return buffer.getvalue()


def box(text="Hello", run=None, paragraph=None, x=2, y=2, width=8, height=2, inner=None):
    run_name = f' text:style-name="r_{run}"' if run else ""
    paragraph_name = f' text:style-name="p_{paragraph}"' if paragraph else ""
    inner = inner or f"<text:p{paragraph_name}><text:span{run_name}>{text}</text:span></text:p>"
    return f'<draw:frame draw:layer="layout" draw:style-name="frame" svg:x="{x}cm" svg:y="{y}cm" svg:width="{width}cm" svg:height="{height}cm"><draw:text-box>{inner}</draw:text-box></draw:frame>'


def image(color="red", x=3, y=5, width=4, height=3):
    data = base64.b64encode(picture(color)).decode()
    return f'<draw:frame draw:layer="layout" draw:style-name="image" svg:x="{x}cm" svg:y="{y}cm" svg:width="{width}cm" svg:height="{height}cm"><draw:image><office:binary-data>{data}</office:binary-data></draw:image></draw:frame>'


def grid(*rows):
    made = "".join("<table:table-row>" + "".join(f"<table:table-cell><text:p>{cell}</text:p></table:table-cell>" for cell in row) + "</table:table-row>" for row in rows)
    columns = f'<table:table-column table:number-columns-repeated="{len(rows[0])}"/>'
    return f'<draw:frame draw:layer="layout" svg:x="3cm" svg:y="6cm" svg:width="10cm" svg:height="3cm"><table:table>{columns}{made}</table:table></draw:frame>'


def flat(office, name, *slides):
    """Slides are pairs of shapes and a dictionary with `page`, `notes`."""
    styles = "".join(f'<style:style style:name="r_{key}" style:family="text"><style:text-properties {value}/></style:style>' for key, value in RUNS.items())
    styles += "".join(f'<style:style style:name="p_{key}" style:family="paragraph"><style:paragraph-properties {value}/></style:style>' for key, value in PARAGRAPHS.items())
    styles += "".join(f'<style:style style:name="d_{key}" style:family="drawing-page"><style:drawing-page-properties {value}/></style:style>' for key, value in PAGES.items())
    styles += '<style:style style:name="frame" style:family="graphic"><style:graphic-properties draw:stroke="none" draw:fill="none" draw:auto-grow-height="false"/></style:style><style:style style:name="image" style:family="graphic"><style:graphic-properties draw:stroke="none" draw:fill="none"/></style:style>'
    layout = '<style:page-layout style:name="page"><style:page-layout-properties fo:page-width="25.4cm" fo:page-height="19.05cm" style:print-orientation="landscape"/></style:page-layout>'
    pages = ""
    for at, (shapes, extra) in enumerate(slides):
        look = f' draw:style-name="d_{extra["page"]}"' if "page" in extra else ""
        notes = f'<presentation:notes><draw:frame presentation:class="notes" draw:layer="layout" svg:x="2cm" svg:y="14cm" svg:width="16cm" svg:height="10cm"><draw:text-box><text:p>{extra["notes"]}</text:p></draw:text-box></draw:frame></presentation:notes>' if "notes" in extra else ""
        pages += f'<draw:page draw:name="s{at + 1}" draw:master-page-name="Default"{look}>{shapes}{notes}</draw:page>'
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?><office:document {SPACES} office:version="1.3" office:mimetype="application/vnd.oasis.opendocument.presentation"><office:styles></office:styles>'
        f'<office:automatic-styles>{layout}{styles}</office:automatic-styles><office:master-styles><style:master-page style:name="Default" style:page-layout-name="page"/></office:master-styles><office:body><office:presentation>{pages}</office:presentation></office:body></office:document>'
    )
    return office.flat(f"p_{name}", "fodp", text, "pptx")


def slides(office):
    shapes = {
        "gold": box(), "strike": box(run="strike"), "centre": box(paragraph="centre"),
        "lines": box(inner="<text:p>Hello</text:p><text:p>there</text:p>"), "lines_first": box(inner='<text:p text:style-name="p_centre">Hello</text:p><text:p>there</text:p>'), "lines_last": box(inner='<text:p>Hello</text:p><text:p text:style-name="p_centre">there</text:p>'), "listed": box(inner="<text:list><text:list-item><text:p>Hello</text:p></text:list-item></text:list>"), "image": box() + image(), "image_large": box() + image(width=25.4, height=19.05, x=0, y=0), "grid": box() + grid(["a", "b"], ["c", "d"]), "group": f"<draw:g>{box()}{box('there', y=9)}</draw:g>",
    }
    files = {name: flat(office, name, (body, {})) for name, body in shapes.items()}
    extras = {"green": {"page": "green"}, "dissolve": {"page": "dissolve"}}
    files |= {name: flat(office, name, (box(), extra)) for name, extra in extras.items()}
    files["two"] = flat(office, "two", (box(), {"page": "green"}), (box("there"), {"page": "wipe", "notes": "Second"}))
    files |= saved_again(office)
    every = ["shape", "text", "indent", "font_name", "font_size", "font_bold", "font_italic", "color_rgb", "font_underline", "strike_through", "alignment", "bullets", "background_color", "note"]
    own = {"strike": "strike_through", "centre": "alignment", "green": "background_color", "listed": "bullets"}
    for name, file in files.items():
        for other in dict.fromkeys(["gold", name, "image", "grid", "again"]):
            case(f"{name} {other}", "compare_pptx_files", file, files[other])
            case(f"{other} {name}", "compare_pptx_files", files[other], file, **{f"examine_{one}": False for one in every})
        if name.startswith("lines"):
            case(name, "compare_pptx_files", file, files["lines"], examine_alignment=False)
        if name in own:
            case(name, "compare_pptx_files", file, files["gold"], **{f"examine_{own[name]}": False})
        for option in ["image_size", "modify_height", "shape_for_shift_size", "top_position", "right_position", "table_bottom_position", "title_bottom_position"]:
            case(name, "compare_pptx_files", file, files["image"], examine_shape=False, **{f"examine_{option}": True})
        for kind in ["dissolve", "push", "fade", "wipe", "randomBar"]:
            case(name, "check_transition", file, {"slide_idx": 1 if name == "two" else 0, "transition_type": kind})
        for rgb in [[0, 255, 0], [255, 255, 255]]:
            case(name, "evaluate_presentation_fill_to_rgb_distance", file, {"rgb": rgb})
            case(name, "evaluate_presentation_fill_to_rgb_distance", file, {"rgb": rgb, "original_rgb": [0, 254, 0]})
        case(name, "check_slide_orientation_Portrait", file)
        case(name, "check_image_stretch_and_center", file, files["image"])
        for color in ["red", "blue", "green", "black"]:
            case(name, "check_page_number_colors", file, {"color": color})
        for rule in [{"slide_index_s": [0], "shape_index_s": [0], "paragraph_index_s": [0]}, {"slide_index_s": [0], "shape_index_s": [0], "paragraph_index_s": [0, 1]}]:
            case(name, "check_strikethrough", file, rule)


def saved_again(office):
    """Slides of python-pptx, opened in LibreOffice and saved."""

    def saved(name, *changes):
        made = pptx.Presentation()
        slide = made.slides.add_slide(made.slide_layouts[1])
        slide.shapes.title.text = "Product Comparison"
        slide.placeholders[1].text = "One\nTwo"
        for change in changes:
            change(slide)
        path, file = office.source(f"p_{name}", "pptx", "pptx")
        made.save(path)
        return file

    def body(slide):
        return slide.placeholders[1].text_frame

    def fill(slide):
        slide.background.fill.solid()
        slide.background.fill.fore_color.rgb = RGBColor(0, 255, 0)

    def runs(slide):
        font = body(slide).paragraphs[0].runs[0].font
        font.bold, font.size, font.color.rgb = True, Pt(20), RGBColor(255, 0, 0)

    def level(slide):
        body(slide).paragraphs[1].level = 1

    def centre(slide):
        body(slide).paragraphs[0].alignment = PP_ALIGN.CENTER

    def notes(slide):
        slide.notes_slide.notes_text_frame.text = "Remember"

    return {"again": saved("again"), "again_changed": saved("again_changed", fill, runs, level, centre, notes)}
