//! The pivot tables of a sheet: what they count, and how.

use crate::error::MetricError;
use crate::sheet::Described;
use crate::sheet::book::{Book, is_true};
use crate::sheet::range::CellPosition;
use crate::xml::{child, descendants, parse};
use roxmltree::Node;
use serde_json::{Map, json};
use std::collections::{BTreeMap, BTreeSet};

/// Items of a field: hidden or not, and which.
type Items = Vec<(bool, i64)>;

/// Pivot tables by their source, each with the properties asked for.
///
/// Fields without items at either end of the source are cut off, and fields are counted from the first that is
/// left, so that a wider source range counts as the same source.
pub fn pivot_tables(book: &Book, sheet: &str, properties: &[&str]) -> Result<Described, MetricError> {
    let mut tables = BTreeMap::new();
    for relation in book.relations_of(sheet)?.iter().filter(|relation| relation.is("pivotTable")) {
        let text = book.package.xml(&relation.target)?;
        let document = parse(&text)?;
        let root = document.root_element();
        let fields: Vec<Items> = listed(root, "pivotFields").map(items).collect();
        let left = fields.iter().take_while(|items| items.is_empty()).count();
        let right = fields[left..].iter().rev().take_while(|items| items.is_empty()).count();
        let selection = &fields[left..fields.len() - right];
        let cache = book.package.relations(&relation.target)?;
        let cache = cache
            .target("pivotCacheDefinition")
            .ok_or_else(|| MetricError::raises("a pivot table without a cache"))?;
        let source = source(&book.package.xml(cache)?, left as i64, right as i64)?;
        let mut values = Map::new();
        for name in properties {
            let value = match *name {
                "filter" | "selection" => {
                    if *name == "filter" {
                        let fields: BTreeSet<i64> = numbers(root, "pageFields", "fld").into_iter().collect();
                        values.insert("filter_fields".into(), json!(fields));
                    }
                    let set = |items: &Items| items.iter().copied().collect::<BTreeSet<_>>();
                    let ordered = properties.contains(&"ordered");
                    let value = if ordered {
                        json!(selection)
                    } else {
                        json!(selection.iter().map(set).collect::<Vec<_>>())
                    };
                    values.insert("selection".into(), value);
                    continue;
                }
                "col_fields" => json!(moved(numbers(root, "colFields", "x"), left)),
                "row_fields" => json!(moved(numbers(root, "rowFields", "x"), left)),
                "data_fields" => {
                    let with_name = properties.contains(&"data_fields_name");
                    json!(
                        listed(root, "dataFields")
                            .map(|node| data_field(node, left, with_name))
                            .collect::<Vec<_>>()
                    )
                }
                "name" => json!(root.attribute("name")),
                "show_total" => json!(root.attribute("visualTotals").is_none_or(is_true)),
                "show_headers" => json!(root.attribute("showHeaders").is_none_or(is_true)),
                "show_empty_row" => json!(root.attribute("showEmptyRow").is_some_and(is_true)),
                "show_empty_col" => json!(root.attribute("showEmptyCol").is_some_and(is_true)),
                "location" => {
                    let place = child(root, "location");
                    let attributes = place.into_iter().flat_map(|node| node.attributes());
                    json!(attributes.map(|one| (one.name(), one.value())).collect::<BTreeMap<_, _>>())
                }
                "ordered" | "data_fields_name" => continue,
                other => {
                    return Err(MetricError::Unsupported(format!("compare_table's pivot property {other}")));
                }
            };
            values.insert((*name).to_owned(), value);
        }
        tables.insert(source, values);
    }
    Ok(tables)
}

fn listed<'a, 'input>(root: Node<'a, 'input>, name: &str) -> impl Iterator<Item = Node<'a, 'input>> {
    let list = child(root, name);
    list.into_iter().flat_map(|node| node.children()).filter(Node::is_element)
}

fn number(node: Node, name: &str) -> Option<i64> {
    node.attribute(name)?.parse().ok()
}

fn numbers(root: Node, list: &str, name: &str) -> Vec<i64> {
    listed(root, list).map(|node| number(node, name).unwrap_or(0)).collect()
}

fn moved(fields: Vec<i64>, left: usize) -> Vec<i64> {
    fields.into_iter().map(|field| field - left as i64).collect()
}

fn items(field: Node) -> Items {
    let hidden = |node: Node| node.attribute("h").is_some_and(is_true);
    listed(field, "items").filter_map(|node| Some((hidden(node), number(node, "x")?))).collect()
}

fn data_field(node: Node, left: usize, with_name: bool) -> String {
    let name = if with_name { node.attribute("name").unwrap_or("None") } else { "" };
    let subtotal = node.attribute("subtotal").unwrap_or("sum");
    let shown = node.attribute("showDataAs").unwrap_or("normal");
    format!("{};{name};{subtotal};{shown}", number(node, "fld").unwrap_or(0) - left as i64)
}

fn source(text: &str, left: i64, right: i64) -> Result<String, MetricError> {
    let document = parse(text)?;
    let find = |name: &str| descendants(document.root(), name).next();
    let missing = || MetricError::raises("a pivot table whose source is not a range");
    let sheet = find("worksheetSource").ok_or_else(missing)?;
    let (from, to) = sheet.attribute("ref").and_then(|range| range.split_once(':')).ok_or_else(missing)?;
    let (from, to) =
        (CellPosition::parse(from).ok_or_else(missing)?, CellPosition::parse(to).ok_or_else(missing)?);
    let kind = find("cacheSource").and_then(|node| node.attribute("type")).unwrap_or("None");
    let name = sheet.attribute("sheet").unwrap_or("None");
    let (first, last) = (i64::from(from.column) + left, i64::from(to.column) - right);
    Ok(format!("{kind};({}, {first}):({}, {last});{name}", from.row, to.row))
}
