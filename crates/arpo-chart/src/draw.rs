//! Draws a chart: title and legend above, light grid lines at round numbers, an interval as a pale band, the last value at
//! the end of each curve.

use crate::ticks::{Ticks, ticks};
use crate::{Chart, Point, Series, colour};
use arpo_env::offscreen;
use egui::epaint::Mesh;
use egui::{Align2, Color32, FontId, Galley, Painter, Pos2, Rect, Shape, Stroke, pos2, vec2};
use image::RgbImage;

/// Sizes below are for a chart of this height; other heights are scaled.
const HEIGHT: f32 = 450.0;

const INK: Color32 = Color32::from_gray(40);
const FAINT_INK: Color32 = Color32::from_gray(105);
const GRID: Color32 = Color32::from_gray(228);
const AXIS: Color32 = Color32::from_gray(150);

/// Opacity of an interval's band.
const BAND_OPACITY: f32 = 0.2;

/// Curves with at most this many points show a marker at each.
const MARKED_POINTS: usize = 40;

/// The image of a chart.
pub(crate) fn draw(chart: &Chart) -> RgbImage {
    offscreen::render(chart.width, chart.height, |painter| Drawing::new(chart, painter).draw())
}

/// A chart on a painter, with its axes fixed.
struct Drawing<'a> {
    chart: &'a Chart,
    painter: &'a Painter,
    /// Pixels per pixel of the standard height.
    scale: f32,
    /// The area of the curves.
    area: Rect,
    x: Axis,
    y: Axis,
}

/// The range of an axis and its ticks.
struct Axis {
    low: f64,
    high: f64,
    ticks: Ticks,
}

impl<'a> Drawing<'a> {
    fn new(chart: &'a Chart, painter: &'a Painter) -> Self {
        let scale = chart.height as f32 / HEIGHT;
        let (width, height) = (chart.width as f32, chart.height as f32);
        let area = Rect::from_min_max(
            pos2(58.0 * scale, 84.0 * scale),
            pos2(width - 58.0 * scale, height - 52.0 * scale),
        );
        let points =
            || chart.series.iter().flat_map(|series| series.points.iter().filter(|one| is_finite(one)));
        let (low, high) = ends(points().map(|point| point.x));
        let wanted = (area.width() / (70.0 * scale)) as usize;
        let x = Axis { low, high, ticks: ticks(low, high, wanted, true) };
        let (low, high) = chart.y_range.unwrap_or_else(|| {
            let band = |point: &Point| point.band.map_or([point.y; 2], |(low, high)| [low, high]);
            let (low, high) = ends(points().flat_map(band));
            let margin = (high - low) * 0.05;
            (low - margin, high + margin)
        });
        let y = Axis { low, high, ticks: ticks(low, high, 5, false) };
        Self { chart, painter, scale, area, x, y }
    }

    fn draw(&self) {
        self.labels();
        self.axes();
        let inside = self.painter.with_clip_rect(self.area.expand(4.0 * self.scale));
        for (number, series) in self.chart.series.iter().enumerate() {
            self.band(&inside, series, colour_of(number));
        }
        for (number, series) in self.chart.series.iter().enumerate() {
            self.curve(&inside, series, colour_of(number));
        }
        self.legend();
        self.last_values();
    }

    fn labels(&self) {
        let Self { chart, painter, scale, area, .. } = self;
        let left = area.left() - 42.0 * scale;
        painter.text(
            pos2(left, 14.0 * scale),
            Align2::LEFT_TOP,
            &chart.title,
            FontId::proportional(19.0 * scale),
            INK,
        );
        painter.text(
            pos2(left, area.top() - 12.0 * scale),
            Align2::LEFT_BOTTOM,
            &chart.y_label,
            self.font(),
            FAINT_INK,
        );
        painter.text(
            pos2(area.center().x, area.bottom() + 28.0 * scale),
            Align2::CENTER_TOP,
            &chart.x_label,
            self.font(),
            FAINT_INK,
        );
    }

    /// Entries in a row, right-aligned, on the line of the y label; where that is too narrow, in a column in the lower right
    /// corner, which rising curves leave free.
    fn legend(&self) {
        let Self { scale, area, .. } = *self;
        let names = self.chart.series.iter();
        let names = names.map(|one| self.painter.layout_no_wrap(one.name.clone(), self.font(), INK));
        let names: Vec<_> = names.collect();
        let (line, gap, between) = (20.0 * scale, 7.0 * scale, 20.0 * scale);
        let width = |name: &Galley| line + gap + name.size().x;
        let whole = names.iter().map(|name| width(name) + between).sum::<f32>() - between;
        let beside = whole < area.width() - 70.0 * scale;
        let widest = names.iter().map(|name| width(name)).fold(0.0, f32::max);
        let row = 19.0 * scale;
        let (mut x, mut middle) = if beside {
            (area.right() - whole, area.top() - 20.0 * scale)
        } else {
            (area.right() - widest - 6.0 * scale, area.bottom() - row * (names.len() as f32 - 0.3))
        };
        for (number, name) in names.into_iter().enumerate() {
            let stroke = Stroke::new(3.0 * scale, colour_of(number));
            self.painter.line_segment([pos2(x, middle), pos2(x + line, middle)], stroke);
            let position = pos2(x + line + gap, middle - name.size().y / 2.0).round();
            if beside {
                x += width(&name) + between;
            } else {
                middle += row;
            }
            self.painter.galley(position, name, INK);
        }
    }

    fn axes(&self) {
        let Self { painter, scale, area, .. } = self;
        for &value in &self.y.ticks.values {
            let y = self.y_pixel(value).round();
            let line =
                Rect::from_min_max(pos2(area.left(), y), pos2(area.right(), y + scale.round().max(1.0)));
            painter.rect_filled(line, 0.0, GRID);
            let label = self.y.ticks.label(value);
            painter.text(
                pos2(area.left() - 8.0 * scale, y),
                Align2::RIGHT_CENTER,
                label,
                self.font(),
                FAINT_INK,
            );
        }
        let thick = scale.round().max(1.0);
        let bottom = area.bottom().round();
        let line = Rect::from_min_max(pos2(area.left(), bottom), pos2(area.right(), bottom + thick));
        painter.rect_filled(line, 0.0, AXIS);
        for &value in &self.x.ticks.values {
            let x = self.x_pixel(value).round();
            let mark = Rect::from_min_size(pos2(x, bottom), vec2(thick, 5.0 * scale));
            painter.rect_filled(mark, 0.0, AXIS);
            let label = self.x.ticks.label(value);
            painter.text(pos2(x, bottom + 8.0 * scale), Align2::CENTER_TOP, label, self.font(), FAINT_INK);
        }
    }

    fn band(&self, painter: &Painter, series: &Series, paint: Color32) {
        let edges = series.points.iter().filter(|point| is_finite(point)).map(|point| {
            let (low, high) = point.band.unwrap_or((point.y, point.y));
            [self.position(point.x, high), self.position(point.x, low)]
        });
        let edges: Vec<[Pos2; 2]> = edges.collect();
        if series.points.iter().all(|point| point.band.is_none()) {
            return;
        }
        let mut mesh = Mesh::default();
        let pale = paint.gamma_multiply(BAND_OPACITY);
        for corner in edges.iter().flatten() {
            mesh.colored_vertex(*corner, pale);
        }
        for strip in 1..edges.len() as u32 {
            let first = 2 * strip - 2;
            mesh.add_triangle(first, first + 1, first + 2);
            mesh.add_triangle(first + 1, first + 2, first + 3);
        }
        painter.add(Shape::mesh(mesh));
    }

    fn curve(&self, painter: &Painter, series: &Series, paint: Color32) {
        let scale = self.scale;
        let positions: Vec<Pos2> = self.positions(series);
        if positions.len() <= MARKED_POINTS {
            for position in &positions {
                painter.circle_filled(*position, 3.2 * scale, paint);
            }
        }
        painter.line(positions, Stroke::new(2.2 * scale, paint));
    }

    /// Labels at the ends of the curves, moved apart where they would overlap.
    fn last_values(&self) {
        let scale = self.scale;
        let height = 15.0 * scale;
        let last = |(number, series): (usize, &Series)| {
            let point = *series.points.iter().rev().find(|point| is_finite(point))?;
            Some((self.position(point.x, point.y), point.y, number))
        };
        let mut ends: Vec<(Pos2, f64, usize)> =
            self.chart.series.iter().enumerate().filter_map(last).collect();
        // only for curves that reach the right edge
        ends.retain(|(position, ..)| position.x > self.area.right() - 2.0);
        ends.sort_by(|one, other| one.0.y.total_cmp(&other.0.y));
        let mut free = f32::NEG_INFINITY;
        let mut heights: Vec<f32> = ends
            .iter()
            .map(|(position, ..)| {
                let y = position.y.max(free);
                free = y + height;
                y
            })
            .collect();
        // the last ones may have been pushed below the area: push them back
        let mut limit = self.area.bottom();
        for y in heights.iter_mut().rev() {
            *y = y.min(limit);
            limit = *y - height;
        }
        for ((_, value, number), y) in ends.iter().zip(heights) {
            let span = self.y.high - self.y.low;
            let decimals = if span <= 2.0 { 2 } else { usize::from(span < 50.0) };
            self.painter.text(
                pos2(self.area.right() + 9.0 * scale, y),
                Align2::LEFT_CENTER,
                format!("{value:.decimals$}"),
                FontId::proportional(14.0 * scale),
                colour_of(*number),
            );
        }
    }

    fn font(&self) -> FontId {
        FontId::proportional(14.0 * self.scale)
    }

    fn positions(&self, series: &Series) -> Vec<Pos2> {
        let points = series.points.iter().filter(|point| is_finite(point));
        points.map(|point| self.position(point.x, point.y)).collect()
    }

    fn position(&self, x: f64, y: f64) -> Pos2 {
        pos2(self.x_pixel(x), self.y_pixel(y))
    }

    fn x_pixel(&self, x: f64) -> f32 {
        self.area.left() + self.area.width() * ((x - self.x.low) / (self.x.high - self.x.low)) as f32
    }

    fn y_pixel(&self, y: f64) -> f32 {
        let y = y.clamp(self.y.low, self.y.high);
        self.area.bottom() - self.area.height() * ((y - self.y.low) / (self.y.high - self.y.low)) as f32
    }
}

/// Whether all values of a point are finite.
fn is_finite(point: &Point) -> bool {
    let finite = |(low, high): (f64, f64)| low.is_finite() && high.is_finite();
    point.x.is_finite() && point.y.is_finite() && point.band.is_none_or(finite)
}

/// The minimum and the maximum; never equal, so that the axis has a length.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return (0.0, 1.0);
    }
    let margin = if high > low { 0.0 } else { 0.5 * low.abs().max(1.0) };
    (low - margin, high + margin)
}

fn colour_of(number: usize) -> Color32 {
    let [red, green, blue] = colour(number);
    Color32::from_rgb(red, green, blue)
}
