//! The sparklines of a sheet: the cells they show, by the cell they are in.

use crate::error::MetricError;
use crate::sheet::book::Book;
use crate::xml::{child, descendants, parse};
use std::collections::BTreeMap;

/// Sparklines by their cells. As with a single cell, the part is looked for by the sheet's number.
pub fn sparklines(book: &Book, sheet: &str) -> Result<BTreeMap<String, String>, MetricError> {
    let entry = book.entry(sheet).ok_or_else(|| MetricError::raises(format!("no sheet {sheet:?}")))?;
    let text = book.package.xml(&format!("xl/worksheets/sheet{}.xml", entry.id))?;
    let document = parse(&text)?;
    let mut sparklines = BTreeMap::new();
    for node in descendants(document.root(), "sparkline") {
        let part = |name: &str| {
            let child = child(node, name);
            let child = child.ok_or_else(|| MetricError::raises(format!("a sparkline without {name}")))?;
            Ok::<_, MetricError>(child.text().unwrap_or_default().trim().to_owned())
        };
        sparklines.insert(part("sqref")?, part("f")?);
    }
    Ok(sparklines)
}
