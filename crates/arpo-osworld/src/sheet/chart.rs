//! The charts of a sheet, as openpyxl reads them: by the cells they show.

use crate::error::MetricError;
use crate::sheet::Described;
use crate::sheet::book::Book;
use crate::xml::{child, children, descendants, parse};
use roxmltree::{Document, Node};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Charts by their series, each with the properties asked for.
pub fn charts(book: &Book, sheet: &str, properties: &[&str]) -> Result<Described, MetricError> {
    let mut charts = BTreeMap::new();
    for drawing in book.relations_of(sheet)?.iter().filter(|relation| relation.is("drawing")) {
        let relations = book.package.relations(&drawing.target)?;
        for (id, relation) in relations.by_id().filter(|(_, relation)| relation.is("chart")) {
            let text = book.package.xml(&relation.target)?;
            let document = parse(&text)?;
            // A chart of several kinds counts by the first of them.
            let Some(group) = first_group(&document) else { continue };
            let series =
                children(group, "ser").map(|one| format!("{},{}", cells(one, "val"), cells(one, "cat")));
            let series = series.collect::<Vec<_>>().join(";");
            let value = |name: &str| match name {
                "anchor" => anchor(&book.package.xml(&drawing.target)?, id),
                name => property(&document, group, name),
            };
            let values = properties.iter().map(|name| Ok(((*name).to_owned(), value(name)?)));
            charts.insert(series, values.collect::<Result<Map<_, _>, MetricError>>()?);
        }
    }
    Ok(charts)
}

fn area<'a, 'input>(document: &'a Document<'input>) -> Option<Node<'a, 'input>> {
    descendants(document.root(), "plotArea").next()
}

fn first_group<'a, 'input>(document: &'a Document<'input>) -> Option<Node<'a, 'input>> {
    area(document)?.children().find(|node| node.tag_name().name().ends_with("Chart"))
}

/// The range of a series' values or categories: numbers, or else texts.
fn cells(series: Node, part: &str) -> String {
    let source = child(series, part);
    let range = |kind: &str| source.and_then(|node| child(node, kind)).and_then(|node| child(node, "f"));
    range("numRef").or_else(|| range("strRef")).and_then(|node| node.text()).unwrap_or_default().to_owned()
}

fn property(document: &Document<'_>, group: Node, name: &str) -> Result<Value, MetricError> {
    let chart = descendants(document.root(), "chart").next();
    Ok(match name {
        "title" => title(chart),
        "legend" => {
            let legend = chart.and_then(|node| child(node, "legend"));
            let position =
                |node| child(node, "legendPos").and_then(|node| node.attribute("val")).unwrap_or("r");
            legend.map_or(Value::Null, |node| json!(position(node)))
        }
        // openpyxl does not read the size of a chart: it is always the one it would write.
        "width" => json!(15),
        "height" => json!(7.5),
        "type" => json!(group.tag_name().name()),
        "direction" => {
            let direction =
                child(group, "barDir").ok_or_else(|| MetricError::raises("a chart without a direction"))?;
            json!(direction.attribute("val").unwrap_or("col"))
        }
        "xtitle" => title(axis(document, group, 0)),
        "ytitle" => title(axis(document, group, 1)),
        "ztitle" => title(axis(document, group, 2)),
        other => return Err(MetricError::Unsupported(format!("compare_table's chart property {other}"))),
    })
}

/// How a chart is fixed to cells: the row where it ends takes the place of the row where it begins. One that is fixed to a
/// single cell raises.
fn anchor(drawing: &str, chart: &str) -> Result<Value, MetricError> {
    let document = parse(drawing)?;
    let shows = |node: &Node| {
        let links = descendants(*node, "chart");
        links.flat_map(|node| node.attributes()).any(|one| one.name() == "id" && one.value() == chart)
    };
    let found = document.root_element().children().filter(Node::is_element).find(shows);
    let found = found.filter(|node| node.tag_name().name() == "twoCellAnchor");
    let found = found.ok_or_else(|| MetricError::raises("a chart that is not fixed to two cells"))?;
    let number = |end: &str, name: &str| {
        let number = child(found, end).and_then(|node| child(node, name)).and_then(|node| node.text());
        json!(number.and_then(|text| text.trim().parse::<i64>().ok()))
    };
    let row = number("to", "row");
    Ok(json!([found.attribute("editAs"), number("from", "col"), row, number("to", "col"), row]))
}

fn axis<'a, 'input>(document: &'a Document<'input>, group: Node, index: usize) -> Option<Node<'a, 'input>> {
    let id = children(group, "axId").nth(index)?.attribute("val")?;
    area(document)?.children().find(|node| {
        child(*node, "axId").is_some_and(|one| one.attribute("val") == Some(id))
            && node.tag_name().name().ends_with("Ax")
    })
}

/// The first run of the first paragraph of a title; nothing if any of it is not there.
fn title(node: Option<Node>) -> Value {
    let path = ["title", "tx", "rich", "p", "r", "t"];
    let found =
        path.iter().try_fold(node, |node, name| Some(node.and_then(|node| child(node, name)))).flatten();
    found.and_then(|node| node.text()).map_or(Value::Null, |text| json!(text))
}
