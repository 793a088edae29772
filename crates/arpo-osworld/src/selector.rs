//! Elements of an XML document by CSS selectors, and by the part of XPath that task files use.
//!
//! What is not implemented is an error that names the selector, never an empty result.

use crate::error::MetricError;
use roxmltree::{Document, Node};

/// A prefix of attributes and the namespaces that it may stand for.
pub type Namespaces<'a> = &'a [(&'a str, &'a [&'a str])];

/// One step of a selector: how it relates to the step before it, and what the element must be.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    relation: Relation,
    tag: Option<String>,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Descendant,
    Child,
    Next,
    Later,
}

#[derive(Debug, Clone, PartialEq)]
enum Condition {
    /// An attribute with its prefix, how it is compared, and with what.
    Attribute {
        prefix: Option<String>,
        name: String,
        operator: Operator,
        value: String,
    },
    Text {
        operator: Operator,
        value: String,
    },
    Any(Vec<Vec<Condition>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Present,
    Equal,
    Contains,
    Starts,
    Ends,
    Word,
}

impl Operator {
    fn holds(self, found: &str, wanted: &str) -> bool {
        match self {
            Self::Present => true,
            Self::Equal => found == wanted,
            Self::Contains => !wanted.is_empty() && found.contains(wanted),
            Self::Starts => !wanted.is_empty() && found.starts_with(wanted),
            Self::Ends => !wanted.is_empty() && found.ends_with(wanted),
            Self::Word => found.split_whitespace().any(|word| word == wanted),
        }
    }
}

/// The elements that one of the selectors chooses.
pub fn by_css<'a, 'input>(
    document: &'a Document<'input>,
    selectors: &str,
    namespaces: Namespaces<'_>,
) -> Result<Vec<Node<'a, 'input>>, MetricError> {
    let mut chosen = Vec::new();
    for selector in split_outside(selectors, ',') {
        let steps = css_steps(selector.trim())
            .ok_or_else(|| MetricError::Unsupported(format!("the selector {selector:?}")))?;
        let elements = document.descendants().filter(Node::is_element);
        chosen.extend(elements.filter(|node| matches_steps(*node, &steps, namespaces)));
    }
    Ok(chosen)
}

/// The elements that a path chooses: `//tag[condition]//*[condition]`, with `and`, `or`, `contains`, `starts-with`, `@name`
/// and `text()`.
pub fn by_xpath<'a, 'input>(
    document: &'a Document<'input>,
    path: &str,
    namespaces: Namespaces<'_>,
) -> Result<Vec<Node<'a, 'input>>, MetricError> {
    let steps = xpath_steps(path).ok_or_else(|| MetricError::Unsupported(format!("the XPath {path:?}")))?;
    let elements = document.descendants().filter(Node::is_element);
    Ok(elements.filter(|node| matches_steps(*node, &steps, namespaces)).collect())
}

fn matches_steps(node: Node, steps: &[Step], namespaces: Namespaces<'_>) -> bool {
    let Some((step, before)) = steps.split_last() else { return true };
    let is_it = step.tag.as_ref().is_none_or(|tag| node.tag_name().name() == tag)
        && step.conditions.iter().all(|condition| holds(node, condition, namespaces));
    if !is_it {
        return false;
    }
    if before.is_empty() {
        return step.relation == Relation::Descendant || node.parent().is_some_and(|parent| parent.is_root());
    }
    let matches = |other: Node| other.is_element() && matches_steps(other, before, namespaces);
    match step.relation {
        Relation::Descendant => node.ancestors().skip(1).any(matches),
        Relation::Child => node.parent().is_some_and(matches),
        Relation::Next => node.prev_sibling_element().is_some_and(matches),
        Relation::Later => node.prev_siblings().skip(1).any(matches),
    }
}

fn holds(node: Node, condition: &Condition, namespaces: Namespaces<'_>) -> bool {
    match condition {
        Condition::Attribute { prefix, name, operator, value } => {
            let is_space = |space: Option<&str>| match prefix {
                None => space.is_none(),
                Some(prefix) => space.is_some_and(|space| {
                    namespaces.iter().any(|(known, spaces)| known == prefix && spaces.contains(&space))
                }),
            };
            node.attributes().any(|one| {
                one.name() == name && is_space(one.namespace()) && operator.holds(one.value(), value)
            })
        }
        // of several pieces of text the first counts
        Condition::Text { operator, value } => {
            let mut texts = node.children().filter(Node::is_text);
            texts.next().and_then(|node| node.text()).is_some_and(|text| operator.holds(text, value))
        }
        Condition::Any(choices) => {
            choices.iter().any(|all| all.iter().all(|condition| holds(node, condition, namespaces)))
        }
    }
}

/// Parts of a text between a letter, where that is not in quotes or brackets.
fn split_outside(text: &str, at: char) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut quote) = (Vec::new(), 0, 0_usize, None);
    for (index, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[' | '(') => depth += 1,
            (None, ']' | ')') => depth = depth.saturating_sub(1),
            (None, _) if letter == at && depth == 0 => {
                parts.push(&text[start..index]);
                start = index + at.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn name_length(text: &str) -> usize {
    text.find(|letter: char| !letter.is_alphanumeric() && !"-_".contains(letter)).unwrap_or(text.len())
}

fn css_steps(selector: &str) -> Option<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    let mut rest = selector;
    let mut relation = Relation::Descendant;
    while !rest.is_empty() {
        let (tag, after) = rest.split_at(name_length(rest));
        rest = after;
        let is_any = tag.is_empty() && rest.starts_with('*');
        if is_any {
            rest = &rest[1..];
        }
        let mut conditions = Vec::new();
        while let Some(after) = rest.strip_prefix('[') {
            let parts = split_outside_bracket(after)?;
            conditions.push(css_condition(parts.0)?);
            rest = parts.1;
        }
        if tag.is_empty() && !is_any && conditions.is_empty() {
            return None;
        }
        let tag = (!tag.is_empty()).then(|| tag.to_owned());
        steps.push(Step { relation, tag, conditions });
        let trimmed = rest.trim_start();
        relation = match trimmed.chars().next() {
            None => break,
            Some('>') => Relation::Child,
            Some('+') => Relation::Next,
            Some('~') => Relation::Later,
            Some(_) if trimmed.len() < rest.len() => Relation::Descendant,
            Some(_) => return None,
        };
        rest = trimmed.trim_start_matches(['>', '+', '~']).trim_start();
    }
    (!steps.is_empty()).then_some(steps)
}

/// What is inside a bracket that is open, and what follows it.
fn split_outside_bracket(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    for (index, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, ']') => return Some((&text[..index], &text[index + 1..])),
            _ => {}
        }
    }
    None
}

fn css_condition(text: &str) -> Option<Condition> {
    let (prefix, rest) = match text.split_once('|') {
        Some((prefix, rest)) if name_length(prefix) == prefix.len() && !rest.starts_with('=') => {
            (Some(prefix.trim().to_owned()), rest)
        }
        _ => (None, text),
    };
    let (name, rest) = rest.split_at(name_length(rest));
    let operators = [
        ("*=", Operator::Contains),
        ("^=", Operator::Starts),
        ("$=", Operator::Ends),
        ("~=", Operator::Word),
        ("=", Operator::Equal),
    ];
    let rest = rest.trim();
    let (operator, value) = if rest.is_empty() {
        (Operator::Present, String::new())
    } else {
        let (word, operator) = operators.into_iter().find(|(word, _)| rest.starts_with(word))?;
        (operator, unquoted(rest[word.len()..].trim())?)
    };
    Some(Condition::Attribute { prefix, name: name.to_owned(), operator, value })
}

fn unquoted(text: &str) -> Option<String> {
    for quote in ['"', '\''] {
        if let Some(rest) = text.strip_prefix(quote) {
            return rest.strip_suffix(quote).filter(|inner| !inner.contains('\\')).map(str::to_owned);
        }
    }
    (name_length(text) == text.len() && !text.is_empty()).then(|| text.to_owned())
}

fn xpath_steps(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path.trim();
    while !rest.is_empty() {
        let relation = if rest.starts_with("//") { Relation::Descendant } else { Relation::Child };
        rest = rest.strip_prefix("//").or_else(|| rest.strip_prefix('/'))?;
        let (tag, after) = rest.split_at(name_length(rest));
        rest = after;
        if tag.is_empty() {
            rest = rest.strip_prefix('*')?;
        }
        let mut conditions = Vec::new();
        while let Some(after) = rest.strip_prefix('[') {
            let (inside, after) = split_outside_bracket(after)?;
            conditions.push(xpath_condition(inside)?);
            rest = after;
        }
        steps.push(Step { relation, tag: (!tag.is_empty()).then(|| tag.to_owned()), conditions });
    }
    (!steps.is_empty()).then_some(steps)
}

fn xpath_condition(text: &str) -> Option<Condition> {
    let choice = |part: &str| split_word(part, "and").into_iter().map(xpath_test).collect::<Option<Vec<_>>>();
    split_word(text, "or").into_iter().map(choice).collect::<Option<Vec<_>>>().map(Condition::Any)
}

/// Parts between a word that stands alone outside of quotes.
fn split_word<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let pieces = split_outside(text, ' ');
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    for piece in pieces {
        if piece == word {
            parts.push(text[start..at].trim());
            start = at + piece.len();
        }
        at += piece.len() + 1;
    }
    parts.push(text[start.min(text.len())..].trim());
    parts
}

fn xpath_test(text: &str) -> Option<Condition> {
    let (what, operator, value) = if let Some((function, operator)) =
        [("contains(", Operator::Contains), ("starts-with(", Operator::Starts)]
            .into_iter()
            .find(|(word, _)| text.starts_with(word))
    {
        let inner = text[function.len()..].strip_suffix(')')?;
        let parts = split_outside(inner, ',');
        let [what, value] = parts.as_slice() else { return None };
        (what.trim(), operator, unquoted(value.trim())?)
    } else {
        match split_outside(text, '=').as_slice() {
            [what, value] => (what.trim(), Operator::Equal, unquoted(value.trim())?),
            [what] => (what.trim(), Operator::Present, String::new()),
            _ => return None,
        }
    };
    if what == "text()" {
        return Some(Condition::Text { operator, value });
    }
    let name = what.strip_prefix('@')?;
    let (prefix, name) =
        name.split_once(':').map_or((None, name), |(prefix, name)| (Some(prefix.to_owned()), name));
    (name_length(name) == name.len()).then(|| Condition::Attribute {
        prefix,
        name: name.to_owned(),
        operator,
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = r#"<d xmlns:a="urn:a"><app name="T B"><bar a:id="m"><label name="To"/><x/><p a:class="pill">
        <label name="fox@u.edu" a:class="l">fox</label></p></bar></app><app name="Other"/></d>"#;
    const SPACES: Namespaces<'_> = &[("attr", &["urn:a"])];

    #[test]
    fn selectors_choose_elements() {
        let document = Document::parse(TREE).unwrap();
        let count = |selector: &str| by_css(&document, selector, SPACES).unwrap().len();
        assert_eq!((count("label"), count("app[name=Other]"), count("app[name='T B'] label")), (2, 1, 2));
        assert_eq!(count("bar[attr|id=m] label[name=To]~[attr|class=\"pill\"]>label[name*=\"fox@u\"]"), 1);
        assert_eq!((count("label+x"), count("label+p"), count("label~p"), count("app>label")), (1, 0, 1, 0));
        assert_eq!(
            (count("x, label"), count("[attr|id]"), count("*[name^=f]"), count("d>app")),
            (3, 1, 1, 2)
        );
        assert_eq!((count("[other|id=m]"), count("[id=m]")), (0, 0));
        for selector in ["label:first-child", "label..x", "[name=", ""] {
            assert!(by_css(&document, selector, SPACES).is_err(), "{selector}");
        }
    }

    #[test]
    fn paths_choose_elements() {
        let document = Document::parse(TREE).unwrap();
        let count = |path: &str| by_xpath(&document, path, SPACES).unwrap().len();
        assert_eq!(count("//app[@name='T B']//*[contains(text(), 'fox') or contains(@name, 'nobody')]"), 1);
        assert_eq!(count("//label[@name='To' and contains(@name, 'T')]"), 1);
        assert_eq!(
            (count("/d/app"), count("/app"), count("//*[@attr:id='m']"), count("//x[@name]")),
            (2, 0, 1, 0)
        );
        assert!(by_xpath(&document, "//app[position()=1]", SPACES).is_err());
        assert!(by_xpath(&document, "count(//app)", SPACES).is_err());
    }
}
