//! The filter of a sheet, as OSWorld describes openpyxl's reading of it.

use crate::sheet::book::is_true;
use crate::xml::{child, children};
use roxmltree::Node;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The description of a sheet without a filter.
pub fn none() -> Map<String, Value> {
    described_with(None, &[])
}

fn described_with(range: Option<&str>, columns: &[Value]) -> Map<String, Value> {
    let parts = [("ref", json!(range)), ("filter_column", json!(columns))];
    parts.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

/// The range, the columns in the order of their numbers with what they show, and the order of the rows.
pub fn described(node: Node) -> Map<String, Value> {
    let mut columns: Vec<(i64, Value)> = children(node, "filterColumn").map(column).collect();
    columns.sort_by_key(|(number, _)| *number);
    let columns: Vec<Value> = columns.into_iter().map(|(_, column)| column).collect();
    let mut described = described_with(node.attribute("ref"), &columns);
    if let Some(sort) = child(node, "sortState") {
        described.insert("sort_state".into(), sort_state(sort));
    }
    described
}

fn flag(node: Node, name: &str, default: bool) -> bool {
    node.attribute(name).map_or(default, is_true)
}

fn column(node: Node) -> (i64, Value) {
    let number = node.attribute("colId").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut column = json!({
        "col_id": number,
        "hidden_button": flag(node, "hiddenButton", false),
        "show_button": flag(node, "showButton", true),
    });
    if let Some(filters) = child(node, "filters") {
        let shown: BTreeSet<&str> =
            children(filters, "filter").filter_map(|filter| filter.attribute("val")).collect();
        column["filters_blank"] = json!(flag(filters, "blank", false));
        column["filters"] = json!(shown);
    }
    if let Some(custom) = child(node, "customFilters") {
        let conditions: BTreeSet<(&str, Option<&str>)> = children(custom, "customFilter")
            .map(|filter| (filter.attribute("operator").unwrap_or("equal"), filter.attribute("val")))
            .collect();
        column["custom_filters_op"] = json!(flag(custom, "and", false));
        column["custom_filters"] = json!(conditions);
    }
    (number, column)
}

fn sort_state(node: Node) -> Value {
    let condition = |one: Node| {
        json!({
            "descending": flag(one, "descending", false),
            "key": one.attribute("sortBy"),
            "ref": one.attribute("ref"),
            "custom_list": one.attribute("customList"),
            "dxf_id": one.attribute("dxfId"),
            "icon": one.attribute("iconSet"),
            "iconid": one.attribute("iconId"),
        })
    };
    json!({
        "sort": flag(node, "columnSort", false),
        "case": flag(node, "caseSensitive", false),
        "method": node.attribute("sortMethod"),
        "ref": node.attribute("ref"),
        "condition": children(node, "sortCondition").map(condition).collect::<Vec<_>>(),
    })
}
