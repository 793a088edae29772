//! `LibreOffice`'s settings file, `registrymodifications.xcu`: items by path, properties by name.

use crate::xml::child;
use roxmltree::Document;

const OOR: &str = "http://openoffice.org/2001/registry";

/// The value of a property; the last one, where a file has several.
pub(super) fn setting(document: &Document<'_>, path: &str, property: &str) -> Option<String> {
    let items = document
        .descendants()
        .filter(|node| node.tag_name().name() == "item" && node.attribute((OOR, "path")) == Some(path));
    let properties = items
        .flat_map(|item| item.descendants())
        .filter(|node| node.tag_name().name() == "prop" && node.attribute((OOR, "name")) == Some(property));
    let values = properties.filter_map(|node| child(node, "value"));
    values.map(|node| node.text().unwrap_or_default().to_owned()).next_back()
}
