//! A workbook: its worksheets by name, shared texts, styles, and what rules ask of a sheet besides its data.

use crate::error::MetricError;
use crate::package::{Package, Relation};
use crate::sheet::cell::RawCell;
use crate::sheet::condition::{self, Condition};
use crate::sheet::filter;
use crate::sheet::range::{CellPosition, CellRange};
use crate::sheet::styles::Styles;
use crate::state::Bytes;
use crate::xml::{child, children, descendants, parse};
use roxmltree::Node;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A worksheet's entry in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SheetEntry {
    /// The name on its tab.
    pub name: String,
    /// The number the workbook gives it, which need not be its position.
    pub id: String,
    /// The part.
    pub part: String,
}

/// An opened workbook.
pub struct Book {
    /// The archive.
    pub package: Package,
    /// Worksheets in the order of their tabs.
    pub sheets: Vec<SheetEntry>,
    /// Shared texts as openpyxl joins them.
    pub shared: Vec<String>,
    /// Shared texts as OSWorld's own reader of one cell joins them; none if it cannot, as where one of them is empty.
    pub lone_shared: Option<Vec<String>>,
    /// Styles.
    pub styles: Styles,
    /// Dates count from 1904.
    pub since_1904: bool,
}

/// A worksheet's content.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sheet {
    /// Cells that the file has.
    pub cells: BTreeMap<CellPosition, RawCell>,
    /// Merged ranges.
    pub merged: Vec<CellRange>,
    /// The cell below and right of the frozen part.
    pub freeze: Option<String>,
    /// Zoom in percent, if the file says one.
    pub zoom: Option<f64>,
    /// Rows that have properties of their own: their number, and openpyxl's names of them.
    pub rows: BTreeMap<u32, Map<String, Value>>,
    /// Columns likewise, by letter.
    pub columns: BTreeMap<String, Map<String, Value>>,
    /// Validations: openpyxl's attributes of each.
    pub validations: Vec<Map<String, Value>>,
    /// Links: by cell, with their attributes.
    pub links: BTreeMap<String, Map<String, Value>>,
    /// Formats that depend on conditions, in the order of the file.
    pub conditions: Vec<Condition>,
    /// The filter of the sheet as OSWorld describes it.
    pub filter: Map<String, Value>,
}

impl Book {
    /// Opens a workbook.
    pub fn open(bytes: &Bytes) -> Result<Self, MetricError> {
        let package = Package::open(bytes)?;
        let main = main_part(&package)?;
        let text = package.xml(&main)?;
        let document = parse(&text)?;
        let root = document.root_element();
        let relations = package.relations(&main)?;
        let mut sheets = Vec::new();
        for node in descendants(root, "sheet") {
            let link = node.attributes().find(|one| one.name() == "id" && one.namespace().is_some());
            let Some(relation) = link.and_then(|link| relations.get(link.value())) else { continue };
            if relation.is("worksheet") {
                let name = node.attribute("name").unwrap_or_default().to_owned();
                let id = node.attribute("sheetId").unwrap_or_default().to_owned();
                sheets.push(SheetEntry { name, id, part: relation.target.clone() });
            }
        }
        let shared = match relations.target("sharedStrings") {
            Some(part) if package.has(part) => shared_texts(&package.xml(part)?)?,
            _ => Vec::new(),
        };
        let lone_shared = package
            .has(LONE_SHARED_PART)
            .then(|| package.xml(LONE_SHARED_PART).and_then(|text| lone_shared_texts(&text)).ok().flatten())
            .flatten();
        let styles = Styles::read(&package, relations.target("styles").unwrap_or("xl/styles.xml"))?;
        let properties = child(root, "workbookPr");
        let since_1904 = properties.and_then(|node| node.attribute("date1904")).is_some_and(is_true);
        Ok(Self { package, sheets, shared, lone_shared, styles, since_1904 })
    }

    /// The names on the tabs.
    pub fn names(&self) -> Vec<&str> {
        self.sheets.iter().map(|sheet| sheet.name.as_str()).collect()
    }

    /// The entry of a name.
    pub fn entry(&self, name: &str) -> Option<&SheetEntry> {
        self.sheets.iter().find(|sheet| sheet.name == name)
    }

    /// A sheet's content by name; none if there is no such sheet.
    pub fn sheet(&self, name: &str) -> Result<Option<Sheet>, MetricError> {
        self.entry(name).map(|entry| Sheet::parse(&self.package.xml(&entry.part)?)).transpose()
    }

    /// What a sheet points to.
    pub fn relations_of(&self, name: &str) -> Result<Vec<Relation>, MetricError> {
        let Some(entry) = self.entry(name) else { return Ok(Vec::new()) };
        Ok(self.package.relations(&entry.part)?.iter().cloned().collect())
    }
}

/// Where OSWorld's own reader looks for shared texts, whatever the relations say.
const LONE_SHARED_PART: &str = "xl/sharedStrings.xml";

fn main_part(package: &Package) -> Result<String, MetricError> {
    let main = package.relations("")?.target("officeDocument").map(str::to_owned);
    main.filter(|part| package.has(part))
        .or_else(|| package.has("xl/workbook.xml").then(|| "xl/workbook.xml".to_owned()))
        .ok_or_else(|| MetricError::raises("an archive without a workbook"))
}

/// Each entry's text: its own `t` and those of its runs, without the reading help of Asian scripts.
fn shared_texts(text: &str) -> Result<Vec<String>, MetricError> {
    let document = parse(text)?;
    let entries = children(document.root_element(), "si");
    Ok(entries.map(|entry| rich_text(entry).replace("x005F_", "")).collect())
}

/// Each entry's text with every `t` in it; none if one of them is empty.
fn lone_shared_texts(text: &str) -> Result<Option<Vec<String>>, MetricError> {
    let document = parse(text)?;
    let entries = children(document.root_element(), "si");
    let joined = |entry: Node| {
        let texts = descendants(entry, "t").map(|node| node.text());
        texts.collect::<Option<Vec<&str>>>().map(|texts| texts.concat())
    };
    Ok(entries.map(joined).collect())
}

/// The text of an `si` or `is` element.
pub fn rich_text(node: Node) -> String {
    let mut text = String::new();
    for child in node.children() {
        match child.tag_name().name() {
            "t" => text.push_str(child.text().unwrap_or_default()),
            "r" => {
                for part in children(child, "t") {
                    text.push_str(part.text().unwrap_or_default());
                }
            }
            _ => {}
        }
    }
    text
}

/// An attribute's truth.
pub fn is_true(text: &str) -> bool {
    matches!(text, "1" | "true" | "on" | "t")
}

impl Sheet {
    /// Reads a worksheet part.
    pub fn parse(text: &str) -> Result<Self, MetricError> {
        let document = parse(text)?;
        let mut sheet = Self::default();
        let mut filter = None;
        for section in document.root_element().children() {
            match section.tag_name().name() {
                "sheetData" => sheet.read_rows(section),
                "mergeCells" => {
                    let ranges =
                        section.children().filter_map(|node| CellRange::parse(node.attribute("ref")?));
                    sheet.merged.extend(ranges);
                }
                "sheetViews" => sheet.read_view(section),
                "cols" => sheet.read_columns(section),
                "dataValidations" => {
                    let entries = children(section, "dataValidation");
                    sheet.validations.extend(entries.map(validation));
                }
                "hyperlinks" => {
                    for node in section.children() {
                        if let Some(cell) = node.attribute("ref") {
                            let attributes = node.attributes();
                            let entries = attributes.map(|one| (one.name().to_owned(), json!(one.value())));
                            sheet.links.insert(cell.to_owned(), entries.collect());
                        }
                    }
                }
                "conditionalFormatting" => sheet.conditions.extend(condition::read(section)),
                "autoFilter" => filter = Some(filter::described(section)),
                _ => {}
            }
        }
        sheet.filter = filter.unwrap_or_else(filter::none);
        Ok(sheet)
    }

    fn read_rows(&mut self, section: Node) {
        let mut row = 0;
        for node in children(section, "row") {
            row = node.attribute("r").and_then(|text| text.parse().ok()).unwrap_or(row + 1);
            let mut column = 0;
            for cell in children(node, "c") {
                let position = cell
                    .attribute("r")
                    .and_then(CellPosition::parse)
                    .unwrap_or(CellPosition { row, column: column + 1 });
                column = position.column;
                self.cells.insert(position, RawCell::read(cell));
            }
            let own: Vec<_> = node.attributes().filter(|one| !matches!(one.name(), "r" | "spans")).collect();
            if !own.is_empty() {
                let flag = |name: &str| json!(node.attribute(name).is_some_and(is_true));
                let height = node.attribute("ht").and_then(|text| text.parse::<f64>().ok());
                let properties = [
                    ("hidden", flag("hidden")),
                    ("collapsed", flag("collapsed")),
                    ("height", height.map_or(Value::Null, |height| json!(height))),
                ];
                self.rows.insert(
                    row,
                    properties.map(|(name, value)| (name.to_owned(), value)).into_iter().collect(),
                );
            }
        }
    }

    fn read_view(&mut self, section: Node) {
        let Some(view) = section.children().find(Node::is_element) else { return };
        self.zoom = view.attribute("zoomScale").and_then(|text| text.parse().ok());
        let pane = child(view, "pane");
        self.freeze = pane.and_then(|pane| pane.attribute("topLeftCell")).map(str::to_owned);
    }

    fn read_columns(&mut self, section: Node) {
        for node in children(section, "col") {
            let number = |name: &str| node.attribute(name).and_then(|text| text.parse::<f64>().ok());
            let flag = |name: &str| json!(node.attribute(name).is_some_and(is_true));
            let Some(first) = number("min") else { continue };
            let properties = [
                ("width", json!(number("width").unwrap_or(13.0))),
                ("auto_size", flag("bestFit")),
                ("hidden", flag("hidden")),
                ("collapsed", flag("collapsed")),
                ("min", json!(first)),
                ("max", json!(number("max").unwrap_or(first))),
            ];
            let letter = crate::sheet::range::column_letters(first as u32);
            self.columns.insert(
                letter,
                properties.map(|(name, value)| (name.to_owned(), value)).into_iter().collect(),
            );
        }
    }

    /// What is used: from A1 to where cells and merged ranges end.
    pub fn used_range(&self) -> CellRange {
        let ends = || self.cells.keys().copied().chain(self.merged.iter().map(|range| range.to));
        let row = ends().map(|position| position.row).max().unwrap_or(1);
        let column = ends().map(|position| position.column).max().unwrap_or(1);
        CellRange { from: CellPosition { row: 1, column: 1 }, to: CellPosition { row, column } }
    }

    /// Whether a cell is covered by a merged range and is not its first.
    pub fn is_covered(&self, position: CellPosition) -> bool {
        self.merged.iter().any(|range| range.has(position) && range.from != position)
    }
}

/// openpyxl's attributes of a validation.
fn validation(node: Node) -> Map<String, Value> {
    let text = |name: &str| node.attribute(name).map_or(Value::Null, |text| json!(text));
    let flag = |name: &str| json!(node.attribute(name).is_some_and(is_true));
    let child = |name: &str| {
        let child = child(node, name);
        child.and_then(|child| child.text()).map_or(Value::Null, |text| json!(text))
    };
    let mut fields = Map::new();
    for name in ["type", "operator", "error", "errorTitle", "errorStyle", "prompt", "promptTitle", "imeMode"]
    {
        fields.insert(name.into(), text(name));
    }
    for name in ["allowBlank", "showDropDown", "showInputMessage", "showErrorMessage"] {
        fields.insert(name.into(), flag(name));
    }
    fields.insert("formula1".into(), child("formula1"));
    fields.insert("formula2".into(), child("formula2"));
    fields.insert("ranges".into(), text("sqref"));
    fields
}
