//! The rasteriser: egui's clipped triangles to RGB pixels on the CPU, the same on every machine.
//!
//! Coverage is decided at pixel centres and colours are blended in integers, so the result is the same on every
//! platform. Two triangles that make an axis-aligned rectangle (nearly everything egui draws: panels and glyphs) are
//! filled or copied row by row; anything else goes through the general triangle.

use egui::epaint::{ImageData, ImageDelta, Primitive, Vertex};
use egui::{ClippedPrimitive, Color32, Mesh, Rect, TexturesDelta};
use image::RgbImage;

/// The glyph atlas, coverage only: text has one colour per glyph.
#[derive(Debug, Default)]
pub(crate) struct Atlas {
    width: usize,
    height: usize,
    coverage: Vec<u8>,
}

impl Atlas {
    /// Applies the changes of egui. All textures are the one font atlas: nothing here shows images.
    pub(crate) fn update(&mut self, mut delta: TexturesDelta) {
        for (_, deltas) in std::mem::take(&mut delta.set) {
            for delta in deltas {
                self.apply(&delta);
            }
        }
        delta.clear();
    }

    fn apply(&mut self, delta: &ImageDelta) {
        let ImageData::Color(image) = &delta.image;
        let [width, height] = image.size;
        let [left, top] = delta.pos.unwrap_or([0, 0]);
        if delta.pos.is_none() {
            (self.width, self.height) = (width, height);
            self.coverage = vec![0; width * height];
        }
        if width == 0 {
            return;
        }
        for (row, pixels) in image.pixels.chunks_exact(width).enumerate() {
            let start = (top + row) * self.width + left;
            let Some(target) = self.coverage.get_mut(start..start + width) else { continue };
            for (to, from) in target.iter_mut().zip(pixels) {
                *to = quantised(from.a());
            }
        }
    }

    fn at(&self, u: f32, v: f32) -> u8 {
        let (x, y) = ((u * self.width as f32) as usize, (v * self.height as f32) as usize);
        self.coverage.get(y * self.width + x).copied().unwrap_or(0)
    }
}

/// Coverage in sixteen levels: glyphs of egui's own fonts are rasterised with whatever vector instructions a machine
/// has, and the last bits of that must not change the image.
fn quantised(coverage: u8) -> u8 {
    ((u16::from(coverage) + 8) / 17 * 17) as u8
}

/// Pixels from `from` up to, not including, `to`.
#[derive(Clone, Copy)]
struct Span {
    from: usize,
    to: usize,
}

impl Span {
    /// The pixels whose centres lie in [low, high), within `limit`.
    fn of_centres(low: f32, high: f32, limit: Span) -> Span {
        let pixel = |edge: f32| (edge - 0.5).ceil().max(0.0) as usize;
        Span { from: pixel(low).max(limit.from), to: pixel(high).min(limit.to) }
    }

    fn is_empty(self) -> bool {
        self.from >= self.to
    }
}

/// Draws meshes onto an image and reuses its buffers.
#[derive(Debug, Default)]
pub(crate) struct Canvas {
    /// One row of a colour, to be copied.
    row: Vec<u8>,
}

impl Canvas {
    /// Draws all primitives, in their order.
    pub(crate) fn paint(&mut self, image: &mut RgbImage, atlas: &Atlas, primitives: &[ClippedPrimitive]) {
        for ClippedPrimitive { clip_rect, primitive } in primitives {
            if let Primitive::Mesh(mesh) = primitive {
                self.mesh(image, atlas, *clip_rect, mesh);
            }
        }
    }

    fn mesh(&mut self, image: &mut RgbImage, atlas: &Atlas, clip: Rect, mesh: &Mesh) {
        let columns = Span { from: 0, to: image.width() as usize };
        let lines = Span { from: 0, to: image.height() as usize };
        let edge = |value: f32| value.round().max(0.0) as usize;
        let columns = Span { from: edge(clip.min.x), to: edge(clip.max.x).min(columns.to) };
        let lines = Span { from: edge(clip.min.y), to: edge(clip.max.y).min(lines.to) };
        if columns.is_empty() || lines.is_empty() {
            return;
        }
        let corner = |index: u32| mesh.vertices[index as usize];
        let mut at = 0;
        while at + 3 <= mesh.indices.len() {
            let first = [0, 1, 2].map(|i| corner(mesh.indices[at + i]));
            if at + 6 <= mesh.indices.len() {
                let second = [3, 4, 5].map(|i| corner(mesh.indices[at + i]));
                if let Some(quad) = Quad::of(&first, &second) {
                    self.quad(image, atlas, columns, lines, &quad);
                    at += 6;
                    continue;
                }
            }
            triangle(image, atlas, columns, lines, &first);
            at += 3;
        }
    }

    fn quad(&mut self, image: &mut RgbImage, atlas: &Atlas, columns: Span, lines: Span, quad: &Quad) {
        let across = Span::of_centres(quad.low.pos.x, quad.high.pos.x, columns);
        let down = Span::of_centres(quad.low.pos.y, quad.high.pos.y, lines);
        if across.is_empty() || down.is_empty() {
            return;
        }
        let stride = image.width() as usize * 3;
        let pixels: &mut [u8] = image;
        if quad.low.uv == quad.high.uv {
            let colour = covered(quad.low.color, atlas.at(quad.low.uv.x, quad.low.uv.y));
            if colour.a() == 255 {
                let [r, g, b, _] = colour.to_array();
                self.row.clear();
                for _ in across.from..across.to {
                    self.row.extend_from_slice(&[r, g, b]);
                }
                for y in down.from..down.to {
                    pixels[y * stride + across.from * 3..y * stride + across.to * 3]
                        .copy_from_slice(&self.row);
                }
            } else {
                for y in down.from..down.to {
                    let row = &mut pixels[y * stride + across.from * 3..y * stride + across.to * 3];
                    for pixel in row.as_chunks_mut().0 {
                        blend(pixel, colour);
                    }
                }
            }
            return;
        }
        // glyphs lie on whole pixels at the atlas's own scale: texel by texel
        let (u, v) = (quad.low.uv.x * atlas.width as f32, quad.low.uv.y * atlas.height as f32);
        let origin_x = u.round() as i64 - quad.low.pos.x.round() as i64;
        let origin_y = v.round() as i64 - quad.low.pos.y.round() as i64;
        for y in down.from..down.to {
            let line = (y as i64 + origin_y).max(0) as usize * atlas.width;
            let start = (across.from as i64 + origin_x).max(0) as usize;
            let Some(texels) = atlas.coverage.get(line + start..line + start + (across.to - across.from))
            else {
                continue;
            };
            let row = &mut pixels[y * stride + across.from * 3..y * stride + across.to * 3];
            for (pixel, coverage) in row.as_chunks_mut().0.iter_mut().zip(texels) {
                if *coverage > 0 {
                    blend(pixel, covered(quad.low.color, *coverage));
                }
            }
        }
    }
}

/// Two triangles that make an axis-aligned rectangle of one colour.
struct Quad {
    low: Vertex,
    high: Vertex,
}

impl Quad {
    #[expect(clippy::float_cmp, reason = "corners of a rectangle share the same two coordinates")]
    fn of(first: &[Vertex; 3], second: &[Vertex; 3]) -> Option<Self> {
        let all = || first.iter().chain(second);
        let colour = first[0].color;
        if !all().all(|vertex| vertex.color == colour) {
            return None;
        }
        let (mut low, mut high) = (first[0], first[0]);
        for vertex in all() {
            low.pos = low.pos.min(vertex.pos);
            high.pos = high.pos.max(vertex.pos);
        }
        let corners = |triangle: &[Vertex; 3]| {
            triangle.iter().try_fold(0_u8, |seen, vertex| {
                let (left, right) = (vertex.pos.x == low.pos.x, vertex.pos.x == high.pos.x);
                let (top, bottom) = (vertex.pos.y == low.pos.y, vertex.pos.y == high.pos.y);
                let known = (left || right) && (top || bottom);
                known.then_some(seen | 1 << (u8::from(right) + 2 * u8::from(bottom)))
            })
        };
        // each triangle has three corners, and the two missing ones are opposite
        let missing = (!corners(first)? & 15, !corners(second)? & 15);
        if !matches!(missing, (1, 8) | (8, 1) | (2, 4) | (4, 2)) {
            return None;
        }
        let uv_of = |corner: egui::Pos2| all().find(|vertex| vertex.pos == corner).map(|vertex| vertex.uv);
        (low.uv, high.uv) = (uv_of(low.pos)?, uv_of(high.pos)?);
        Some(Self { low, high })
    }
}

/// A premultiplied colour under partial coverage.
fn covered(colour: Color32, coverage: u8) -> Color32 {
    if coverage == 255 {
        return colour;
    }
    let [r, g, b, a] = colour.to_array().map(|channel| scaled(channel, coverage));
    Color32::from_rgba_premultiplied(r, g, b, a)
}

/// `value * by / 255`, rounded to nearest.
fn scaled(value: u8, by: u8) -> u8 {
    let product = u32::from(value) * u32::from(by) + 128;
    ((product + (product >> 8)) >> 8) as u8
}

fn blend(pixel: &mut [u8; 3], colour: Color32) {
    let keep = 255 - colour.a();
    for (channel, new) in pixel.iter_mut().zip(colour.to_array()) {
        *channel = scaled(*channel, keep).saturating_add(new);
    }
}

/// The pixels of a row that a triangle may cover, plus one on each side: most rows of a slim triangle have few.
fn row_span(edges: &[(egui::Pos2, egui::Pos2); 3], y: f32, across: Span) -> std::ops::Range<usize> {
    let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
    for (p, q) in edges {
        if (p.y - 1.0 <= y && y <= q.y + 1.0) || (q.y - 1.0 <= y && y <= p.y + 1.0) {
            let x = if (q.y - p.y).abs() < 1.0 {
                // nearly level: anywhere between its ends
                low = low.min(p.x.min(q.x));
                p.x.max(q.x)
            } else {
                p.x + (q.x - p.x) * ((y - p.y) / (q.y - p.y)).clamp(0.0, 1.0)
            };
            (low, high) = (low.min(x), high.max(x));
        }
    }
    if low > high {
        return 0..0;
    }
    let from = (low.floor() - 1.0).max(across.from as f32) as usize;
    from..((high.ceil() + 1.0).max(0.0) as usize).min(across.to)
}

/// Any triangle: colours and atlas positions are interpolated at pixel centres.
fn triangle(image: &mut RgbImage, atlas: &Atlas, columns: Span, lines: Span, corners: &[Vertex; 3]) {
    let [a, mut b, mut c] = *corners;
    let area =
        |p: egui::Pos2, q: egui::Pos2, r: egui::Pos2| (q.x - p.x) * (r.y - p.y) - (q.y - p.y) * (r.x - p.x);
    let mut whole = area(a.pos, b.pos, c.pos);
    if whole < 0.0 {
        std::mem::swap(&mut b, &mut c);
        whole = -whole;
    }
    if whole <= 0.0 || !whole.is_finite() {
        return;
    }
    let (low, high) = (a.pos.min(b.pos).min(c.pos), a.pos.max(b.pos).max(c.pos));
    // one extra pixel on each side: the edges decide
    let across = Span::of_centres(low.x - 1.0, high.x + 1.0, columns);
    let down = Span::of_centres(low.y - 1.0, high.y + 1.0, lines);
    // a pixel on an edge belongs to one of the two triangles that share it
    let owned = |p: egui::Pos2, q: egui::Pos2| (q.y < p.y) || (q.y - p.y == 0.0 && q.x > p.x);
    let edges = [(b.pos, c.pos), (c.pos, a.pos), (a.pos, b.pos)];
    let plain = a.uv == b.uv && b.uv == c.uv;
    let texel = atlas.at(a.uv.x, a.uv.y);
    let flat = plain && a.color == b.color && b.color == c.color;
    let colour = covered(a.color, texel);
    let stride = image.width() as usize * 3;
    let pixels: &mut [u8] = image;
    for y in down.from..down.to {
        let inside = |x: &usize| {
            let centre = egui::pos2(*x as f32 + 0.5, y as f32 + 0.5);
            edges.iter().all(|(p, q)| {
                let side = area(*p, *q, centre);
                side > 0.0 || (side == 0.0 && owned(*p, *q))
            })
        };
        // a triangle covers one contiguous span of a row
        let candidates = row_span(&edges, y as f32 + 0.5, across);
        let Some(first) = candidates.clone().find(inside) else { continue };
        let last = candidates.rev().find(inside).unwrap_or(first);
        let row = &mut pixels[y * stride + first * 3..y * stride + last * 3 + 3];
        let row = row.as_chunks_mut().0;
        if flat && colour.a() == 255 {
            row.fill([colour.r(), colour.g(), colour.b()]);
            continue;
        }
        if flat {
            for pixel in row {
                blend(pixel, colour);
            }
            continue;
        }
        for (offset, pixel) in row.iter_mut().enumerate() {
            let centre = egui::pos2((first + offset) as f32 + 0.5, y as f32 + 0.5);
            let [wa, wb, wc] = edges.map(|(p, q)| area(p, q, centre) / whole);
            let mix = |f: fn(&Vertex) -> f32| f(&a) * wa + f(&b) * wb + f(&c) * wc;
            let mixed = Color32::from_rgba_premultiplied(
                mix(|v| f32::from(v.color.r())).round() as u8,
                mix(|v| f32::from(v.color.g())).round() as u8,
                mix(|v| f32::from(v.color.b())).round() as u8,
                mix(|v| f32::from(v.color.a())).round() as u8,
            );
            let coverage = if plain { texel } else { atlas.at(mix(|v| v.uv.x), mix(|v| v.uv.y)) };
            blend(pixel, covered(mixed, coverage));
        }
    }
}
