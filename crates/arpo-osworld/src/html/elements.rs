//! What libxml2 knows of elements: which have no content, which end others, and which stand on lines of their own.

/// Elements without content.
const EMPTY: &str = "area base basefont br col frame hr img input isindex link meta param";

/// Elements that are written on lines of their own.
const BLOCKS: &str = "address area base blockquote body caption center col colgroup dd dir div dl dt fieldset form frame \
    frameset h1 h2 h3 h4 h5 h6 head hr html isindex legend li link menu meta noframes noscript ol optgroup option p param \
    pre style table tbody td tfoot th thead title tr ul";

/// An open element, and the elements whose beginning ends it.
const ENDED_BY: &[(&str, &str)] = &[
    ("a", "a fieldset table td th"),
    ("address", "dd dl dt form li ul"),
    ("b", "center p td th"),
    ("big", "p"),
    ("caption", "col colgroup tbody tfoot thead tr"),
    ("colgroup", "colgroup tbody tfoot thead tr"),
    ("dd", "dt"),
    ("dir", "dd dl dt form ul"),
    ("dl", "form li"),
    ("dt", "dd dl"),
    ("font", "center td th"),
    ("form", "form"),
    ("h1", HEADING),
    ("h2", HEADING),
    ("h3", HEADING),
    ("h4", HEADING),
    ("h5", HEADING),
    ("h6", HEADING),
    (
        "head",
        "a abbr acronym address b bdo big blockquote body br center cite code dd dfn dir div dl dt em fieldset font form \
         frameset h1 h2 h3 h4 h5 h6 hr i iframe img kbd li listing map menu ol p pre q s samp small span strike strong sub \
         sup table tt u ul var xmp",
    ),
    ("i", "center p td th"),
    ("legend", "fieldset"),
    ("li", "li"),
    ("listing", "dd dl dt fieldset form li table ul"),
    ("menu", "dd dl dt form ul"),
    ("ol", "form"),
    ("option", "optgroup option"),
    (
        "p",
        "address blockquote body caption center col colgroup dd dir div dl dt fieldset form frameset h1 h2 h3 h4 h5 h6 \
         head hr li listing menu ol p pre table tbody td tfoot th title tr ul xmp",
    ),
    ("pre", "dd dl dt fieldset form li table ul"),
    ("s", "p"),
    ("script", "noscript"),
    ("small", "p"),
    ("span", "td th"),
    ("strike", "p"),
    ("style", "body frameset"),
    ("tbody", "tbody tfoot"),
    ("td", "tbody td tfoot th tr"),
    ("tfoot", "tbody"),
    ("th", "tbody td tfoot th tr"),
    ("thead", "tbody tfoot"),
    ("title", "body frameset"),
    ("tr", "tbody tfoot tr"),
    ("tt", "p"),
    ("u", "p td th"),
    ("ul", "address form menu pre"),
    ("xmp", "dd dl dt fieldset form li table ul"),
];

const HEADING: &str = "fieldset form li p table";

fn is_in(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|one| one == name)
}

/// Whether an element has no content.
pub(super) fn is_empty(name: &str) -> bool {
    is_in(EMPTY, name)
}

/// Whether an element is written on lines of its own.
pub(super) fn is_block(name: &str) -> bool {
    is_in(BLOCKS, name)
}

/// Whether an open element ends where another begins.
pub(super) fn ends_before(open: &str, next: &str) -> bool {
    ENDED_BY.iter().any(|(name, followers)| *name == open && is_in(followers, next))
}

/// An end tag ends no open element of a higher rank than its own.
pub(super) fn rank(name: &str) -> u8 {
    match name {
        "div" => 150,
        "td" | "th" => 160,
        "tr" => 170,
        "thead" | "tbody" | "tfoot" => 180,
        "table" => 190,
        "head" | "body" => 200,
        "html" => 220,
        _ => 100,
    }
}
