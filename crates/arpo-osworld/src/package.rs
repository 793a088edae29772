//! Office files are zip archives of XML: opened with limits, so that a hostile file is an error and not a hang.

use crate::error::MetricError;
use crate::xml::{children, parse, xml_text};
use std::io::{Cursor, Read};
use std::path::{Component, Path};
use std::sync::{Arc, Mutex};
use zip::ZipArchive;

/// Limit of an unpacked part.
const PART_LIMIT_BYTES: u64 = 128 << 20;
/// Limit of parts in an archive.
const PARTS_LIMIT: usize = 20_000;

/// An opened archive.
pub struct Package {
    archive: Mutex<ZipArchive<Cursor<Arc<[u8]>>>>,
    names: Vec<String>,
}

impl Package {
    /// Opens an archive.
    pub fn open(bytes: &Arc<[u8]>) -> Result<Self, MetricError> {
        let archive = ZipArchive::new(Cursor::new(bytes.clone()))
            .map_err(|error| MetricError::raises(format!("not a zip archive: {error}")))?;
        if archive.len() > PARTS_LIMIT {
            return Err(MetricError::raises(format!("an archive of {} parts", archive.len())));
        }
        let names = archive.file_names().filter_map(|name| Some(name.ok()?.into_owned())).collect();
        Ok(Self { archive: Mutex::new(archive), names })
    }

    /// The names of its parts.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether there is a part of this name.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|one| one == name)
    }

    /// The content of a part.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, MetricError> {
        let broken = |error: &dyn std::fmt::Display| MetricError::raises(format!("part {name}: {error}"));
        let mut archive = self.archive.lock().map_err(|error| broken(&error))?;
        let part = archive.by_name(name).map_err(|error| broken(&error))?;
        let mut content = Vec::new();
        let size =
            part.take(PART_LIMIT_BYTES + 1).read_to_end(&mut content).map_err(|error| broken(&error))?;
        if size as u64 > PART_LIMIT_BYTES {
            return Err(broken(&"too large when unpacked"));
        }
        Ok(content)
    }

    /// The content of a part of XML, as text.
    pub fn xml(&self, name: &str) -> Result<String, MetricError> {
        xml_text(&self.read(name)?)
    }

    /// The relationships of a part: by id, type and target, the target resolved to a part's name if it is inside.
    pub fn relations(&self, part: &str) -> Result<Relations, MetricError> {
        let (folder, file) = part.rsplit_once('/').unwrap_or(("", part));
        let name = if folder.is_empty() {
            format!("_rels/{file}.rels")
        } else {
            format!("{folder}/_rels/{file}.rels")
        };
        if !self.has(&name) {
            return Ok(Relations::default());
        }
        let text = self.xml(&name)?;
        let document = parse(&text)?;
        let mut relations = Vec::new();
        for node in children(document.root_element(), "Relationship") {
            let attribute = |key| node.attribute(key).unwrap_or_default();
            let raw = attribute("Target").to_owned();
            let external = attribute("TargetMode") == "External";
            let target = if external { raw.clone() } else { resolved(folder, &raw) };
            let relation = Relation { kind: attribute("Type").to_owned(), raw, target, external };
            relations.push((attribute("Id").to_owned(), relation));
        }
        Ok(Relations(relations))
    }
}

/// The relationships of a part in the order of its file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Relations(Vec<(String, Relation)>);

impl Relations {
    /// By id.
    pub fn get(&self, id: &str) -> Option<&Relation> {
        self.0.iter().find(|(name, _)| name == id).map(|(_, relation)| relation)
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Relation> {
        self.0.iter().map(|(_, relation)| relation)
    }

    /// All with their ids, in order.
    pub fn by_id(&self) -> impl Iterator<Item = (&str, &Relation)> {
        self.0.iter().map(|(id, relation)| (id.as_str(), relation))
    }

    /// The part that the first of a kind points to.
    pub fn target(&self, kind: &str) -> Option<&str> {
        self.iter().find(|relation| relation.is(kind)).map(|relation| relation.target.as_str())
    }
}

/// Where a part points to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// What it is, as an address of the format's schema.
    pub kind: String,
    /// The target as written.
    pub raw: String,
    /// The part's name, or the address if it is outside.
    pub target: String,
    /// Whether the target is outside the archive.
    pub external: bool,
}

impl Relation {
    /// Whether the kind ends with this name.
    pub fn is(&self, kind: &str) -> bool {
        self.kind.rsplit('/').next() == Some(kind)
    }
}

/// A target relative to a folder, as a part's name.
pub fn resolved(folder: &str, target: &str) -> String {
    let joined = match target.strip_prefix('/') {
        Some(absolute) => absolute.to_owned(),
        None => format!("{folder}/{target}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for component in Path::new(&joined).components() {
        match component {
            Component::Normal(part) => parts.extend(part.to_str()),
            Component::ParentDir => drop(parts.pop()),
            _ => {}
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_resolve_to_parts() {
        assert_eq!(resolved("ppt/slides", "../media/a.png"), "ppt/media/a.png");
        assert_eq!(resolved("xl", "/xl/worksheets/sheet1.xml"), "xl/worksheets/sheet1.xml");
        assert_eq!(resolved("", "word/document.xml"), "word/document.xml");
    }

    #[test]
    fn damaged_archives_are_errors() {
        assert!(Package::open(&Arc::from(&b"PK\x03\x04 nothing more"[..])).is_err());
        assert!(Package::open(&Arc::from(&b""[..])).is_err());
    }
}
