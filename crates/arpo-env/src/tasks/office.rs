//! Templates of tasks with the sheet, mail and the shop.

use crate::apps::mail::reply_subject;
use crate::apps::sheet::{cell_name, dimensions, sorted_by};
use crate::apps::shop::DELIVERIES;
use crate::tasks::builder::{TaskBuilder, Template};
use crate::world::App;
use rand::RngExt;
use rand::seq::SliceRandom;
use serde_json::json;
use std::collections::BTreeMap;

const fn template(name: &'static str, app: App, make: fn(&mut TaskBuilder)) -> Template {
    Template { name, app, make }
}

pub(crate) const TRAINING: &[Template] = &[
    template("cell", App::Sheet, cell),
    template("sum", App::Sheet, sum),
    template("sort", App::Sheet, sort),
    template("archive", App::Mail, archive),
    template("delete", App::Mail, delete),
    template("reply", App::Mail, reply),
    template("write", App::Mail, write),
    template("order", App::Shop, order),
    template("order-several", App::Shop, order_several),
    template("reply-missing", App::Mail, reply_missing),
];

pub(crate) const HELD_OUT: &[Template] = &[
    template("two-cells", App::Sheet, two_cells),
    template("sort-other", App::Sheet, sort_other),
    template("archive-two", App::Mail, archive_two),
    template("reply-and-archive", App::Mail, reply_and_archive),
    template("order-with", App::Shop, order_with),
    template("order-missing", App::Shop, order_missing),
];

/// A table of distinct random numbers: what the sheet holds at the start.
pub(crate) fn table(builder: &mut TaskBuilder, columns: usize, rows: usize) -> BTreeMap<String, String> {
    let mut numbers: Vec<u32> = (1..60).collect();
    numbers.shuffle(&mut builder.rng);
    let names = (0..rows).flat_map(|row| (0..columns).map(move |column| cell_name(column, row)));
    let cells: BTreeMap<String, String> =
        names.zip(numbers).map(|(name, number)| (name, number.to_string())).collect();
    builder.given(&["sheet"], json!(cells));
    cells
}

pub(crate) fn size(builder: &TaskBuilder) -> (usize, usize) {
    if builder.pocket { (2, 3) } else { (4, 5) }
}

fn cell(builder: &mut TaskBuilder) {
    let (columns, rows) = size(builder);
    table(builder, columns, rows);
    let name = cell_name(builder.rng.random_range(0..columns), builder.rng.random_range(0..=rows));
    let number = builder.rng.random_range(60..100).to_string();
    builder.goal(&["sheet", &name], number.clone());
    builder.instruct(
        "put {1} in {0}",
        &["Put {1} into cell {0} of the sheet.", "Cell {0} should hold {1}.", "Type {1} in {0}."],
        &[&name, &number],
    );
}

fn two_cells(builder: &mut TaskBuilder) {
    let (columns, rows) = size(builder);
    table(builder, columns, rows);
    let first = cell_name(0, builder.rng.random_range(0..rows));
    let second = cell_name(columns - 1, builder.rng.random_range(0..rows));
    let numbers =
        [builder.rng.random_range(60..80).to_string(), builder.rng.random_range(80..100).to_string()];
    builder.goal(&["sheet", &first], numbers[0].clone());
    builder.goal(&["sheet", &second], numbers[1].clone());
    builder.partial();
    builder.instruct(
        "put {1} in {0} and put {3} in {2}",
        &["Put {1} in {0} and {3} in {2}.", "In the sheet, {0} should be {1} and {2} should be {3}."],
        &[&first, &numbers[0], &second, &numbers[1]],
    );
}

fn sum(builder: &mut TaskBuilder) {
    let (columns, rows) = size(builder);
    let cells = table(builder, columns, rows);
    let column = builder.rng.random_range(0..columns);
    let name = cell_name(column, rows);
    let total: u32 = (0..rows).filter_map(|row| cells[&cell_name(column, row)].parse::<u32>().ok()).sum();
    builder.goal(&["sheet", &name], total.to_string());
    builder.instruct(
        "sum in {0}",
        &[
            "Put the sum of the column into {0}.",
            "In {0} I want the total of the numbers above it.",
            "Add up the cells above {0} and show the sum there.",
        ],
        &[&name],
    );
}

/// Rows sorted by a column: the condition is on the whole sheet, so that it is all or nothing.
fn sorted(builder: &mut TaskBuilder, column: usize, descending: bool) -> char {
    let (columns, rows) = size(builder);
    let cells = table(builder, columns, rows);
    let (all_columns, all_rows, _) = dimensions(builder.pocket);
    let after = sorted_by(&cells, column, descending, (all_columns, all_rows));
    builder.goal(&["sheet"], json!(after));
    char::from(b'A' + column as u8)
}

fn sort(builder: &mut TaskBuilder) {
    let columns = size(builder).0;
    let column = builder.rng.random_range(0..columns);
    let letter = sorted(builder, column, false).to_string();
    builder.instruct(
        "sort by {0}",
        &[
            "Sort the sheet by column {0}, smallest first.",
            "Order the rows by {0}, ascending.",
            "Sort by column {0} upwards.",
        ],
        &[&letter],
    );
}

fn sort_other(builder: &mut TaskBuilder) {
    let columns = size(builder).0;
    let column = builder.rng.random_range(0..columns);
    let descending = !builder.pocket;
    let letter = sorted(builder, column, descending).to_string();
    builder.instruct(
        "sort rows by {0}",
        &["Sort the sheet by column {0}, largest first.", "Order the rows by {0}, descending."],
        &[&letter],
    );
}

/// A message in the inbox: (subject, person).
pub(crate) fn letter(builder: &mut TaskBuilder) -> (&'static str, &'static str) {
    let [subject] = builder.names(builder.words.subjects);
    received(builder, subject)
}

pub(crate) fn received(builder: &mut TaskBuilder, subject: &'static str) -> (&'static str, &'static str) {
    let [person] = builder.names(builder.words.people);
    let [text] = builder.names(builder.words.texts);
    builder.given(&["mail", subject], json!({"folder": "Inbox", "person": person, "text": text}));
    (subject, person)
}

fn archive(builder: &mut TaskBuilder) {
    let (subject, _) = letter(builder);
    builder.goal(&["mail", subject, "folder"], "Archive");
    builder.instruct(
        "store mail {0}",
        &["Archive the mail about {0}.", "Move the message {0} to the archive.", "Please archive \"{0}\"."],
        &[subject],
    );
}

fn archive_two(builder: &mut TaskBuilder) {
    let [first, second] = builder.names(builder.words.subjects);
    for subject in [first, second] {
        received(builder, subject);
        builder.goal(&["mail", subject, "folder"], "Archive");
    }
    builder.partial();
    builder.instruct(
        "store mail {0} and mail {1}",
        &["Archive the mails {0} and {1}.", "Both {0} and {1} can go to the archive."],
        &[first, second],
    );
}

fn delete(builder: &mut TaskBuilder) {
    let (subject, _) = letter(builder);
    builder.gone(&["mail", subject]);
    builder.instruct(
        "delete mail {0}",
        &[
            "Delete the mail about {0}.",
            "Throw the message {0} away.",
            "I don't need the mail \"{0}\" any more.",
        ],
        &[subject],
    );
}

pub(crate) fn answer(builder: &mut TaskBuilder, subject: &str, person: &str) -> &'static str {
    let [text] = builder.names(builder.words.texts);
    let key = reply_subject(subject);
    builder.without(&["mail", &key]);
    builder.goal(&["mail", &key], json!({"folder": "Sent", "person": person, "text": text}));
    text
}

fn reply(builder: &mut TaskBuilder) {
    let (subject, person) = letter(builder);
    let text = answer(builder, subject, person);
    builder.instruct(
        "reply {1} to mail {0}",
        &[
            "Reply to the mail {0} with the text {1}.",
            "Answer {0}: just write {1}.",
            "Send {1} as an answer to the message {0}.",
        ],
        &[subject, text],
    );
}

fn reply_and_archive(builder: &mut TaskBuilder) {
    let (subject, person) = letter(builder);
    let text = answer(builder, subject, person);
    builder.goal(&["mail", subject, "folder"], "Archive");
    builder.partial();
    builder.instruct(
        "reply {1} to mail {0} and store mail {0}",
        &["Answer the mail {0} with {1}, then archive it.", "Reply {1} to {0} and put {0} into the archive."],
        &[subject, text],
    );
}

fn write(builder: &mut TaskBuilder) {
    let [subject] = builder.names(builder.words.subjects);
    let [person] = builder.names(builder.words.people);
    let [text] = builder.names(builder.words.texts);
    builder.without(&["mail", subject]);
    builder.goal(&["mail", subject], json!({"folder": "Sent", "person": person, "text": text}));
    builder.instruct(
        "mail {2} to {0} about {1}",
        &[
            "Write a mail to {0} with the subject {1} and the text {2}.",
            "Send {0} a message: subject {1}, text {2}.",
            "Mail {2} to {0}; use {1} as the subject.",
        ],
        &[person, subject, text],
    );
}

fn reply_missing(builder: &mut TaskBuilder) {
    let [subject] = builder.names(builder.words.subjects);
    let [text] = builder.names(builder.words.texts);
    builder.without(&["mail", subject]);
    builder.infeasible();
    builder.instruct(
        "reply {1} to mail {0}",
        &["Reply to the mail {0} with the text {1}.", "Answer the message {0}: just write {1}."],
        &[subject, text],
    );
}

/// An order: (product, name, code).
pub(crate) fn placed(
    builder: &mut TaskBuilder,
    quantity: u32,
    delivery: &str,
) -> (&'static str, String, String) {
    let [product] = builder.names(builder.words.products);
    let [person] = builder.names(builder.words.people);
    let name: String = person.split('@').next().unwrap_or(person).to_owned();
    let code = builder.rng.random_range(1000..10000).to_string();
    builder.given(&["products", product], product);
    let order = json!({"quantity": quantity, "name": name, "code": code, "delivery": delivery});
    builder.goal(&["orders", product], order);
    (product, name, code)
}

fn order(builder: &mut TaskBuilder) {
    let (product, name, code) = placed(builder, 1, DELIVERIES[0]);
    builder.instruct(
        "buy {0} for {1} code {2}",
        &[
            "Order from the shop: {0}, one piece, for {1}, post code {2}, delivered by post.",
            "Buy {0} in the shop, one piece. It is for {1} at post code {2}; post is fine.",
        ],
        &[product, &name, &code],
    );
}

fn order_several(builder: &mut TaskBuilder) {
    let quantity = builder.rng.random_range(2..4);
    let (product, name, code) = placed(builder, quantity, DELIVERIES[0]);
    builder.instruct(
        "buy {3} {0} for {1} code {2}",
        &[
            "Order {3} of {0} for {1}, post code {2}, by post.",
            "Get {1} {3} pieces of {0} from the shop (post code {2}, by post).",
        ],
        &[product, &name, &code, &quantity.to_string()],
    );
}

fn order_with(builder: &mut TaskBuilder) {
    let quantity = builder.rng.random_range(1..3);
    let way = builder.any(&DELIVERIES[1..]);
    let (product, name, code) = placed(builder, quantity, way);
    builder.instruct(
        "buy {3} {0} for {1} code {2} by {4}",
        &[
            "Order {3} of {0} for {1}, post code {2}; it should come by {4}.",
            "Buy {3} of {0} for {1} ({2}) and have it brought by {4}.",
        ],
        &[product, &name, &code, &quantity.to_string(), way],
    );
}

fn order_missing(builder: &mut TaskBuilder) {
    let [product] = builder.names(builder.words.products);
    let [person] = builder.names(builder.words.people);
    let name = person.split('@').next().unwrap_or(person);
    let code = builder.rng.random_range(1000..10000).to_string();
    builder.without(&["products", product]);
    builder.infeasible();
    builder.instruct(
        "buy {0} for {1} code {2}",
        &[
            "Order from the shop: {0}, one piece, for {1}, post code {2}.",
            "Buy {0}, one piece, for {1} ({2}).",
        ],
        &[product, name, &code],
    );
}
