//! Formulas of conditions, with one unknown: the cell that is tested stands for every reference.
//!
//! OSWorld passes a cell's value as the formula's first argument, whichever cell the formula refers to; a formula of several
//! cells is therefore not implemented rather than guessed.

use crate::error::MetricError;
use crate::text::python;
use serde_json::Value;
use std::cmp::Ordering;

/// A value of a formula.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// A truth value.
    Truth(bool),
    /// `#VALUE!` and its like.
    Error,
}

impl Operand {
    /// Of a cell's value.
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Number(number) => Self::Number(number.as_f64().unwrap_or(f64::NAN)),
            Value::Bool(truth) => Self::Truth(*truth),
            other => Self::Text(python::to_text(other)),
        }
    }

    /// Whether a condition with this value holds.
    pub fn is_true(&self) -> bool {
        match self {
            Self::Number(number) => *number != 0.0,
            Self::Truth(truth) => *truth,
            Self::Text(_) | Self::Error => false,
        }
    }

    /// Python's order of two values, if they have one.
    pub fn python_order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            (a, b) => a.number()?.partial_cmp(&b.number()?),
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Truth(truth) => Some(f64::from(u8::from(*truth))),
            Self::Text(_) | Self::Error => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
            Self::Truth(truth) => if *truth { "TRUE" } else { "FALSE" }.into(),
            Self::Error => "#VALUE!".into(),
        }
    }

    /// A spreadsheet's order: numbers before texts before truth values, texts whatever their case.
    fn order(&self, other: &Self) -> Option<Ordering> {
        let rank = |value: &Self| match value {
            Self::Number(_) => 0,
            Self::Text(_) => 1,
            Self::Truth(_) => 2,
            Self::Error => 3,
        };
        match (self, other) {
            (Self::Error, _) | (_, Self::Error) => None,
            (Self::Text(a), Self::Text(b)) => Some(a.to_lowercase().cmp(&b.to_lowercase())),
            (a, b) if rank(a) == rank(b) => a.number()?.partial_cmp(&b.number()?),
            (a, b) => Some(rank(a).cmp(&rank(b))),
        }
    }
}

/// A parsed formula.
#[derive(Debug, Clone, PartialEq)]
pub struct Formula {
    root: Expression,
    reference: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum Expression {
    Constant(Operand),
    Cell,
    Negated(Box<Expression>),
    Binary(&'static str, Box<Expression>, Box<Expression>),
    Call(String, Vec<Expression>),
}

/// Operators by how strongly they bind, the weakest first.
const LEVELS: [&[&str]; 5] = [&["<>", "<=", ">=", "<", ">", "="], &["&"], &["+", "-"], &["*", "/"], &["^"]];
const FUNCTIONS: [&str; 10] =
    ["AND", "OR", "NOT", "ABS", "LEN", "LEFT", "RIGHT", "SEARCH", "ISERROR", "ISNUMBER"];
/// Parentheses, signs and calls within each other.
const DEPTH_LIMIT: usize = 64;
/// Operands of one formula: a chain of operators is a tree as deep as it is long.
const OPERANDS_LIMIT: usize = 512;

impl Formula {
    /// Parses a formula; what is not implemented is named.
    pub fn parse(text: &str) -> Result<Self, MetricError> {
        let mut parser = Parser { text, rest: text, reference: None, depth: 0, operands: 0 };
        let root = parser.level(0)?;
        if !parser.rest.trim().is_empty() {
            return Err(parser.unsupported());
        }
        Ok(Self { root, reference: parser.reference })
    }

    /// Whether it refers to no cell.
    pub fn is_constant(&self) -> bool {
        self.reference.is_none()
    }

    /// Its value for a cell's value.
    pub fn value(&self, cell: Option<&Operand>) -> Operand {
        evaluate(&self.root, cell.unwrap_or(&Operand::Error))
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    reference: Option<String>,
    depth: usize,
    operands: usize,
}

impl Parser<'_> {
    fn unsupported(&self) -> MetricError {
        MetricError::Unsupported(format!("the formula {:?} of a conditional format", self.text))
    }

    fn take(&mut self, word: &str) -> bool {
        let rest = self.rest.trim_start();
        let taken = rest.strip_prefix(word);
        self.rest = taken.unwrap_or(rest);
        taken.is_some()
    }

    fn level(&mut self, level: usize) -> Result<Expression, MetricError> {
        let Some(operators) = LEVELS.get(level) else { return self.factor() };
        let mut left = self.level(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.take(operator)) {
            let right = self.level(level + 1)?;
            left = Expression::Binary(operator, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn factor(&mut self) -> Result<Expression, MetricError> {
        self.depth += 1;
        self.operands += 1;
        if self.depth > DEPTH_LIMIT || self.operands > OPERANDS_LIMIT {
            return Err(self.unsupported());
        }
        let operand = self.operand();
        self.depth -= 1;
        operand
    }

    fn operand(&mut self) -> Result<Expression, MetricError> {
        if self.take("-") {
            return Ok(Expression::Negated(Box::new(self.factor()?)));
        }
        if self.take("(") {
            let inner = self.level(0)?;
            return if self.take(")") { Ok(inner) } else { Err(self.unsupported()) };
        }
        if self.take("\"") {
            return self.quoted();
        }
        let end = self.rest.find(|letter: char| !letter.is_ascii_alphanumeric() && !"$.".contains(letter));
        let (word, after) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        let word = word.to_ascii_uppercase();
        self.rest = after;
        if let Ok(number) = word.parse::<f64>()
            && word.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.')
        {
            return Ok(Expression::Constant(Operand::Number(number)));
        }
        if FUNCTIONS.contains(&word.as_str()) && self.take("(") {
            let mut arguments = vec![self.level(0)?];
            while self.take(",") || self.take(";") {
                arguments.push(self.level(0)?);
            }
            return if self.take(")") {
                Ok(Expression::Call(word, arguments))
            } else {
                Err(self.unsupported())
            };
        }
        match word.as_str() {
            "TRUE" => return Ok(Expression::Constant(Operand::Truth(true))),
            "FALSE" => return Ok(Expression::Constant(Operand::Truth(false))),
            _ => {}
        }
        let plain = word.replace('$', "");
        let is_fixed = word.matches('$').count() == 2;
        let is_cell = crate::sheet::range::CellPosition::parse(&plain).is_some() && !is_fixed;
        let is_other = self.reference.as_ref().is_some_and(|known| *known != plain);
        if !is_cell || is_other || self.rest.starts_with([':', '!', '(']) {
            return Err(self.unsupported());
        }
        self.reference = Some(plain);
        Ok(Expression::Cell)
    }

    /// A text after its first quote; two quotes are one.
    fn quoted(&mut self) -> Result<Expression, MetricError> {
        let mut text = String::new();
        loop {
            let end = self.rest.find('"').ok_or_else(|| self.unsupported())?;
            text.push_str(&self.rest[..end]);
            self.rest = &self.rest[end + 1..];
            match self.rest.strip_prefix('"') {
                Some(rest) => self.rest = rest,
                None => return Ok(Expression::Constant(Operand::Text(text))),
            }
            text.push('"');
        }
    }
}

fn evaluate(expression: &Expression, cell: &Operand) -> Operand {
    match expression {
        Expression::Constant(value) => value.clone(),
        Expression::Cell => cell.clone(),
        Expression::Negated(inner) => {
            evaluate(inner, cell).number().map_or(Operand::Error, |number| Operand::Number(-number))
        }
        Expression::Binary(operator, left, right) => {
            binary(operator, &evaluate(left, cell), &evaluate(right, cell))
        }
        Expression::Call(name, arguments) => {
            let values: Vec<Operand> = arguments.iter().map(|argument| evaluate(argument, cell)).collect();
            call(name, &values)
        }
    }
}

fn binary(operator: &str, a: &Operand, b: &Operand) -> Operand {
    let compare =
        |holds: fn(Ordering) -> bool| a.order(b).map_or(Operand::Error, |order| Operand::Truth(holds(order)));
    let compute = |apply: fn(f64, f64) -> f64| match (a.number(), b.number()) {
        (Some(a), Some(b)) if apply(a, b).is_finite() => Operand::Number(apply(a, b)),
        _ => Operand::Error,
    };
    match operator {
        "=" => compare(Ordering::is_eq),
        "<>" => compare(Ordering::is_ne),
        "<" => compare(Ordering::is_lt),
        "<=" => compare(Ordering::is_le),
        ">" => compare(Ordering::is_gt),
        ">=" => compare(Ordering::is_ge),
        "+" => compute(|a, b| a + b),
        "-" => compute(|a, b| a - b),
        "*" => compute(|a, b| a * b),
        "/" => compute(|a, b| a / b),
        "^" => compute(f64::powf),
        _ => Operand::Text(a.text() + &b.text()),
    }
}

fn call(name: &str, values: &[Operand]) -> Operand {
    let Some(first) = values.first() else { return Operand::Error };
    let count =
        || values.get(1).map_or(Some(1), |value| value.number().map(|number| number.max(0.0) as usize));
    let letters = || first.text().chars().collect::<Vec<char>>();
    match name {
        "AND" => Operand::Truth(values.iter().all(Operand::is_true)),
        "OR" => Operand::Truth(values.iter().any(Operand::is_true)),
        "NOT" => Operand::Truth(!first.is_true()),
        "ABS" => first.number().map_or(Operand::Error, |number| Operand::Number(number.abs())),
        "LEN" => Operand::Number(letters().len() as f64),
        "LEFT" => {
            count().map_or(Operand::Error, |count| Operand::Text(letters().iter().take(count).collect()))
        }
        "RIGHT" => count().map_or(Operand::Error, |count| {
            let letters = letters();
            Operand::Text(letters.iter().skip(letters.len().saturating_sub(count)).collect())
        }),
        "SEARCH" => {
            let text = values.get(1).map(Operand::text).unwrap_or_default().to_lowercase();
            let at = text.find(&first.text().to_lowercase());
            at.map_or(Operand::Error, |at| Operand::Number((text[..at].chars().count() + 1) as f64))
        }
        "ISERROR" => Operand::Truth(*first == Operand::Error),
        "ISNUMBER" => Operand::Truth(matches!(first, Operand::Number(_))),
        _ => Operand::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(formula: &str, cell: &Operand) -> bool {
        Formula::parse(formula).unwrap().value(Some(cell)).is_true()
    }

    #[test]
    fn conditions_of_one_cell() {
        let text = |text: &str| Operand::Text(text.into());
        assert!(holds("$A2>4", &Operand::Number(5.0)) && !holds("A2>4", &Operand::Number(4.0)));
        assert!(
            holds("AND(A2>2,A2*2-1<=9)", &Operand::Number(5.0)) && holds("NOT(A2=1)", &Operand::Number(5.0))
        );
        assert!(holds("B2=\"say \"\"x\"\"\"", &text("say \"X\"")) && !holds("B2<>\"x\"", &text("x")));
        assert!(
            holds("NOT(ISERROR(SEARCH(\"b\",A1)))", &text("aBc")) && !holds("LEFT(A1,1)=\"b\"", &text("abc"))
        );
        assert!(holds("A1>4", &text("words come after numbers")));
        // as in a spreadsheet, a sign binds more strongly than a power
        assert!(!holds("-A1^2<0", &Operand::Number(2.0)) && holds("-A1^3<0", &Operand::Number(2.0)));
    }

    #[test]
    fn many_operands_are_fine_and_deep_nesting_is_not() {
        assert!(holds(&format!("A1<0{}", "+1".repeat(100)), &Operand::Number(99.0)));
        assert!(Formula::parse(&format!("{}A1{}", "(".repeat(63), ")".repeat(63))).is_ok());
        for formula in [format!("{}A1{}", "(".repeat(64), ")".repeat(64)), format!("A1{}", "+1".repeat(512))]
        {
            assert!(matches!(Formula::parse(&formula), Err(MetricError::Unsupported(_))), "{formula}");
        }
    }

    #[test]
    fn what_is_not_implemented_is_named() {
        for formula in
            ["A1>B1", "SUM(A1:A3)>2", "A1>$C$1", "VLOOKUP(A1,B:C,2)=1", "A1>", "((A1", "\"x", "Sheet2!A1=1"]
        {
            assert!(matches!(Formula::parse(formula), Err(MetricError::Unsupported(_))), "{formula}");
        }
    }
}
