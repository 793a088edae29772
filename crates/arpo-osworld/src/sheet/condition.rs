//! Formats that depend on conditions: which cells meet them, and what becomes of their style.

use crate::error::MetricError;
use crate::sheet::book::{Book, Sheet};
use crate::sheet::cell::{RawCell, lone_values, style_value};
use crate::sheet::formula::{Formula, Operand};
use crate::sheet::range::{CellPosition, Ranges};
use crate::xml::children;
use arpo_core::generation::Generation;
use roxmltree::Node;
use serde_json::{Value, json};

/// One rule of a conditional format.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// `expression`, `cellIs`, `containsText`, ...
    kind: String,
    /// Of `cellIs`.
    operator: String,
    formulas: Vec<String>,
    /// Into the differential styles.
    style: Option<usize>,
    ranges: String,
}

/// Kinds whose formula says whether they hold.
const BY_FORMULA: [&str; 7] = [
    "expression",
    "containsText",
    "notContainsText",
    "endsWith",
    "beginsWith",
    "containsErrors",
    "notContainsErrors",
];

/// After so many empty cells Verified looks no further in a range.
const EMPTY_CELLS_LIMIT: usize = 50;
/// Cells that are looked at for all conditions of a sheet: more than a whole column, which is a usual range. A hostile
/// file names more.
const CELLS_LIMIT: u64 = 2_000_000;

/// The rules of a `conditionalFormatting` element.
pub fn read(section: Node) -> Vec<Condition> {
    let ranges = section.attribute("sqref").unwrap_or_default();
    let rules = children(section, "cfRule");
    let rule = |node: Node| {
        let formulas = children(node, "formula");
        Condition {
            kind: node.attribute("type").unwrap_or_default().to_owned(),
            operator: node.attribute("operator").unwrap_or_default().to_owned(),
            formulas: formulas.map(|node| node.text().unwrap_or_default().to_owned()).collect(),
            style: node.attribute("dxfId").and_then(|text| text.parse().ok()),
            ranges: ranges.to_owned(),
        }
    };
    rules.map(rule).collect()
}

/// What a rule asks of a cell's value.
enum Test {
    Formula(Formula),
    Compared { operator: String, references: Vec<Operand> },
}

/// The cells that meet a condition, rule by rule. The ARPO era knows only expressions, and any other kind raises; in
/// Verified a kind that it does not know tests what the rule before it tested.
pub fn active_cells<'a>(
    book: &Book,
    name: &str,
    sheet: &'a Sheet,
    generation: Generation,
) -> Result<Vec<(&'a Condition, CellPosition)>, MetricError> {
    let later = generation == Generation::Verified;
    let mut active = Vec::new();
    if sheet.conditions.is_empty() {
        return Ok(active);
    }
    let values = lone_values(book, name, generation)?;
    let mut looked_at = 0;
    let mut test: Option<Test> = None;
    for condition in &sheet.conditions {
        let formulas: Result<Vec<Formula>, _> =
            condition.formulas.iter().map(|text| Formula::parse(text)).collect();
        let formulas = formulas?;
        match condition.kind.as_str() {
            "expression" => test = formulas.into_iter().next().map(Test::Formula),
            kind if later && BY_FORMULA.contains(&kind) => {
                test = formulas.into_iter().next().map(Test::Formula);
            }
            "cellIs" if later => {
                // references to other cells cannot be computed, and such a rule is left out
                let references: Option<Vec<Operand>> = formulas
                    .iter()
                    .map(|formula| formula.is_constant().then(|| formula.value(None)))
                    .collect();
                let Some(references) = references else { continue };
                test = Some(Test::Compared { operator: condition.operator.clone(), references });
            }
            _ if later => {}
            other => return Err(MetricError::raises(format!("no such condition: {other}"))),
        }
        let ranges = Ranges::parse(&condition.ranges)?;
        let mut empty = 0;
        for range in &ranges.0 {
            for position in range.cells() {
                looked_at += 1;
                if looked_at > CELLS_LIMIT {
                    let problem = format!("a condition on the cells {}", condition.ranges);
                    return Err(MetricError::Unsupported(problem));
                }
                let value = values.get(&position).cloned().unwrap_or(Ok(Value::Null))?;
                if value.is_null() {
                    empty += 1;
                    if later && empty > EMPTY_CELLS_LIMIT {
                        break;
                    }
                    continue;
                }
                if test.as_ref().is_some_and(|test| test.holds(&Operand::of(&value))) {
                    active.push((condition, position));
                }
            }
        }
    }
    Ok(active)
}

impl Test {
    fn holds(&self, value: &Operand) -> bool {
        match self {
            Self::Formula(formula) => formula.value(Some(value)).is_true(),
            Self::Compared { operator, references } => compared(operator, value, references),
        }
    }
}

/// Python's comparison: a number and a text have no order, which counts as not met.
fn compared(operator: &str, value: &Operand, references: &[Operand]) -> bool {
    let order = |reference: &Operand| value.python_order(reference);
    let Some(first) = references.first() else { return false };
    let ends = || {
        let second = references.get(1).unwrap_or(first);
        let ascending = first.python_order(second)?.is_le();
        Some(if ascending { (order(first)?, order(second)?) } else { (order(second)?, order(first)?) })
    };
    match operator {
        "lessThan" => order(first).is_some_and(std::cmp::Ordering::is_lt),
        "lessThanOrEqual" => order(first).is_some_and(std::cmp::Ordering::is_le),
        "greaterThan" => order(first).is_some_and(std::cmp::Ordering::is_gt),
        "greaterThanOrEqual" => order(first).is_some_and(std::cmp::Ordering::is_ge),
        "equal" => value == first,
        "notEqual" => value != first,
        "between" => ends().is_some_and(|(low, high)| low.is_ge() && high.is_le()),
        "notBetween" => ends().is_some_and(|(low, high)| low.is_lt() || high.is_gt()),
        _ => false,
    }
}

/// A property of a cell that meets a condition.
pub fn conditional_value(
    book: &Book,
    sheet: &Sheet,
    position: CellPosition,
    property: &str,
    condition: &Condition,
    generation: Generation,
) -> Result<Value, MetricError> {
    let own = style_value(book, sheet, position, property, generation);
    let Some(style) = condition.style.and_then(|index| book.styles.differential.get(index)) else {
        return own;
    };
    let fill = |pick: fn(&crate::sheet::styles::Fill) -> Value| style.fill.as_ref().map_or(Value::Null, pick);
    let later = generation == Generation::Verified;
    let has_value = sheet.cells.get(&position).is_some_and(RawCell::has_value);
    match property {
        "fill_type" => Ok(fill(|fill| json!(fill.tag))),
        "bgcolor" => Ok(fill(|fill| fill.back.clone())),
        "fgcolor" if later => Ok(fill(|fill| fill.back.clone())),
        "fgcolor" => Ok(fill(|fill| fill.front.clone())),
        "number_format" => match own? {
            Value::Null => Ok(Value::Null),
            _ => style.format.clone().map(Value::String).ok_or_else(|| missing(property)),
        },
        font if font.starts_with("font_") => {
            if !has_value || sheet.is_covered(position) {
                return Ok(Value::Null);
            }
            let font = style.font.as_ref().ok_or_else(|| missing(property))?;
            Ok(match property {
                "font_name" => font.name.clone(),
                "font_family" => font.family.clone(),
                "font_bold" => font.bold.clone(),
                "font_italic" => font.italic.clone(),
                "font_underline" => font.underline.clone(),
                "font_size" => font.size.clone(),
                "font_color" => font.color.clone().ok_or_else(|| missing(property))?,
                _ => return own,
            })
        }
        _ => own,
    }
}

fn missing(property: &str) -> MetricError {
    MetricError::raises(format!("a conditional format without {property}"))
}
