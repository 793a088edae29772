//! HTML as lxml reads it: libxml2's forgiving parser, which closes, implies and drops elements by tables of its own.
//!
//! Both metrics on HTML compare trees of that parser, so that a browser's rules would give other scores.

mod elements;
mod entities;
mod parse;
mod scan;
mod soup;
mod write;

pub use parse::parse;
pub use soup::same_nodes;
pub use write::pretty;

/// What a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// The whole document.
    Document,
    /// An element with its attributes in order; those without a value have none.
    Element(String, Vec<(String, Option<String>)>),
    /// Text between tags.
    Text(String),
    /// A comment.
    Comment(String),
    /// What is between `<?` and `>`.
    Instruction(String),
    /// What is between `<!DOCTYPE` and `>`.
    Doctype(String),
}

/// A node of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// The nodes in it, in order.
    pub children: Vec<usize>,
}

/// A document: its nodes by number, the document itself being 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Html {
    nodes: Vec<Node>,
}

impl Html {
    fn empty() -> Self {
        Self { nodes: vec![Node { kind: Kind::Document, children: Vec::new() }] }
    }

    /// A node by its number.
    pub fn node(&self, number: usize) -> &Node {
        &self.nodes[number]
    }

    /// The name of an element; of any other node, nothing.
    pub fn name(&self, number: usize) -> &str {
        match &self.nodes[number].kind {
            Kind::Element(name, _) => name,
            _ => "",
        }
    }

    /// Gives an element another name.
    pub fn rename(&mut self, number: usize, to: &str) {
        if let Kind::Element(name, _) = &mut self.nodes[number].kind {
            to.clone_into(name);
        }
    }

    /// Every node below one, in the order of the file.
    pub fn below(&self, number: usize) -> Vec<usize> {
        let mut below = Vec::new();
        let mut open: Vec<usize> = self.nodes[number].children.iter().rev().copied().collect();
        while let Some(next) = open.pop() {
            below.push(next);
            open.extend(self.nodes[next].children.iter().rev());
        }
        below
    }

    /// The first element at the top: what lxml calls the root.
    pub fn root(&self) -> Option<usize> {
        self.elements(0).next()
    }

    /// The elements in a node.
    pub fn elements(&self, number: usize) -> impl Iterator<Item = usize> + '_ {
        self.nodes[number].children.iter().copied().filter(|child| !self.name(*child).is_empty())
    }

    fn add(&mut self, parent: usize, kind: Kind) -> usize {
        if let (Kind::Text(more), Some(last)) = (&kind, self.nodes[parent].children.last().copied())
            && let Kind::Text(text) = &mut self.nodes[last].kind
        {
            text.push_str(more);
            return last;
        }
        self.nodes.push(Node { kind, children: Vec::new() });
        let number = self.nodes.len() - 1;
        self.nodes[parent].children.push(number);
        number
    }
}
