//! Templates of tasks with the sheet, mail and the shop.

use crate::apps::mail::answer_to;
use crate::apps::sheet::{cell_name, dimensions, sorted_by};
use crate::apps::shop::DELIVERIES;
use crate::tasks::maker::{Maker, Template};
use crate::world::App;
use rand::RngExt;
use rand::seq::SliceRandom;
use serde_json::json;
use std::collections::BTreeMap;

const fn template(name: &'static str, app: App, make: fn(&mut Maker)) -> Template {
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

/// A table of drawn numbers, all different: what the sheet holds at the start.
fn table(maker: &mut Maker, columns: usize, rows: usize) -> BTreeMap<String, String> {
    let mut numbers: Vec<u32> = (1..60).collect();
    numbers.shuffle(&mut maker.rng);
    let places = (0..rows).flat_map(|row| (0..columns).map(move |column| cell_name(column, row)));
    let cells: BTreeMap<String, String> =
        places.zip(numbers).map(|(place, number)| (place, number.to_string())).collect();
    maker.given(&["sheet"], json!(cells));
    cells
}

fn size(maker: &Maker) -> (usize, usize) {
    if maker.pocket { (2, 3) } else { (4, 5) }
}

fn cell(maker: &mut Maker) {
    let (columns, rows) = size(maker);
    table(maker, columns, rows);
    let place = cell_name(maker.rng.random_range(0..columns), maker.rng.random_range(0..=rows));
    let number = maker.rng.random_range(60..100).to_string();
    maker.goal(&["sheet", &place], number.clone());
    maker.say(
        "put {1} in {0}",
        &["Put {1} into cell {0} of the sheet.", "Cell {0} should hold {1}.", "Type {1} in {0}."],
        &[&place, &number],
    );
}

fn two_cells(maker: &mut Maker) {
    let (columns, rows) = size(maker);
    table(maker, columns, rows);
    let first = cell_name(0, maker.rng.random_range(0..rows));
    let second = cell_name(columns - 1, maker.rng.random_range(0..rows));
    let numbers = [maker.rng.random_range(60..80).to_string(), maker.rng.random_range(80..100).to_string()];
    maker.goal(&["sheet", &first], numbers[0].clone());
    maker.goal(&["sheet", &second], numbers[1].clone());
    maker.partial();
    maker.say(
        "put {1} in {0} and put {3} in {2}",
        &["Put {1} in {0} and {3} in {2}.", "In the sheet, {0} should be {1} and {2} should be {3}."],
        &[&first, &numbers[0], &second, &numbers[1]],
    );
}

fn sum(maker: &mut Maker) {
    let (columns, rows) = size(maker);
    let cells = table(maker, columns, rows);
    let column = maker.rng.random_range(0..columns);
    let place = cell_name(column, rows);
    let total: u32 = (0..rows).filter_map(|row| cells[&cell_name(column, row)].parse::<u32>().ok()).sum();
    maker.goal(&["sheet", &place], total.to_string());
    maker.say(
        "sum in {0}",
        &[
            "Put the sum of the column into {0}.",
            "In {0} I want the total of the numbers above it.",
            "Add up the cells above {0} and show the sum there.",
        ],
        &[&place],
    );
}

/// Rows sorted by a column: every cell is named, so that it is all or nothing.
fn sorted(maker: &mut Maker, column: usize, descending: bool) -> char {
    let (columns, rows) = size(maker);
    let cells = table(maker, columns, rows);
    let (all_columns, all_rows, _) = dimensions(maker.pocket);
    let after = sorted_by(&cells, column, descending, (all_columns, all_rows));
    maker.goal(&["sheet"], json!(after));
    char::from(b'A' + column as u8)
}

fn sort(maker: &mut Maker) {
    let columns = size(maker).0;
    let column = maker.rng.random_range(0..columns);
    let letter = sorted(maker, column, false).to_string();
    maker.say(
        "sort by {0}",
        &[
            "Sort the sheet by column {0}, smallest first.",
            "Order the rows by {0}, ascending.",
            "Sort by column {0} upwards.",
        ],
        &[&letter],
    );
}

fn sort_other(maker: &mut Maker) {
    let columns = size(maker).0;
    let column = maker.rng.random_range(0..columns);
    let descending = !maker.pocket;
    let letter = sorted(maker, column, descending).to_string();
    maker.say(
        "sort rows by {0}",
        &["Sort the sheet by column {0}, largest first.", "Order the rows by {0}, descending."],
        &[&letter],
    );
}

/// A message in the inbox: (subject, person).
fn letter(maker: &mut Maker) -> (&'static str, &'static str) {
    let [subject] = maker.names(maker.words.subjects);
    received(maker, subject)
}

fn received(maker: &mut Maker, subject: &'static str) -> (&'static str, &'static str) {
    let [person] = maker.names(maker.words.people);
    let [text] = maker.names(maker.words.texts);
    maker.given(&["mail", subject], json!({"folder": "Inbox", "person": person, "text": text}));
    (subject, person)
}

fn archive(maker: &mut Maker) {
    let (subject, _) = letter(maker);
    maker.goal(&["mail", subject, "folder"], "Archive");
    maker.say(
        "store mail {0}",
        &["Archive the mail about {0}.", "Move the message {0} to the archive.", "Please archive \"{0}\"."],
        &[subject],
    );
}

fn archive_two(maker: &mut Maker) {
    let [first, second] = maker.names(maker.words.subjects);
    for subject in [first, second] {
        received(maker, subject);
        maker.goal(&["mail", subject, "folder"], "Archive");
    }
    maker.partial();
    maker.say(
        "store mail {0} and mail {1}",
        &["Archive the mails {0} and {1}.", "Both {0} and {1} can go to the archive."],
        &[first, second],
    );
}

fn delete(maker: &mut Maker) {
    let (subject, _) = letter(maker);
    maker.gone(&["mail", subject]);
    maker.say(
        "delete mail {0}",
        &[
            "Delete the mail about {0}.",
            "Throw the message {0} away.",
            "I don't need the mail \"{0}\" any more.",
        ],
        &[subject],
    );
}

fn answer(maker: &mut Maker, subject: &str, person: &str) -> &'static str {
    let [text] = maker.names(maker.words.texts);
    let key = answer_to(subject);
    maker.without(&["mail", &key]);
    maker.goal(&["mail", &key], json!({"folder": "Sent", "person": person, "text": text}));
    text
}

fn reply(maker: &mut Maker) {
    let (subject, person) = letter(maker);
    let text = answer(maker, subject, person);
    maker.say(
        "reply {1} to mail {0}",
        &[
            "Reply to the mail {0} with the text {1}.",
            "Answer {0}: just write {1}.",
            "Send {1} as an answer to the message {0}.",
        ],
        &[subject, text],
    );
}

fn reply_and_archive(maker: &mut Maker) {
    let (subject, person) = letter(maker);
    let text = answer(maker, subject, person);
    maker.goal(&["mail", subject, "folder"], "Archive");
    maker.partial();
    maker.say(
        "reply {1} to mail {0} and store mail {0}",
        &["Answer the mail {0} with {1}, then archive it.", "Reply {1} to {0} and put {0} into the archive."],
        &[subject, text],
    );
}

fn write(maker: &mut Maker) {
    let [subject] = maker.names(maker.words.subjects);
    let [person] = maker.names(maker.words.people);
    let [text] = maker.names(maker.words.texts);
    maker.without(&["mail", subject]);
    maker.goal(&["mail", subject], json!({"folder": "Sent", "person": person, "text": text}));
    maker.say(
        "mail {2} to {0} about {1}",
        &[
            "Write a mail to {0} with the subject {1} and the text {2}.",
            "Send {0} a message: subject {1}, text {2}.",
            "Mail {2} to {0}; use {1} as the subject.",
        ],
        &[person, subject, text],
    );
}

fn reply_missing(maker: &mut Maker) {
    let [subject] = maker.names(maker.words.subjects);
    let [text] = maker.names(maker.words.texts);
    maker.without(&["mail", subject]);
    maker.infeasible();
    maker.say(
        "reply {1} to mail {0}",
        &["Reply to the mail {0} with the text {1}.", "Answer the message {0}: just write {1}."],
        &[subject, text],
    );
}

/// An order: (product, name, code).
fn placed(maker: &mut Maker, quantity: u32, delivery: &str) -> (&'static str, String, String) {
    let [product] = maker.names(maker.words.products);
    let [person] = maker.names(maker.words.people);
    let name: String = person.split('@').next().unwrap_or(person).to_owned();
    let code = maker.rng.random_range(1000..10000).to_string();
    maker.given(&["products", product], product);
    let order = json!({"quantity": quantity, "name": name, "code": code, "delivery": delivery});
    maker.goal(&["orders", product], order);
    (product, name, code)
}

fn order(maker: &mut Maker) {
    let (product, name, code) = placed(maker, 1, DELIVERIES[0]);
    maker.say(
        "buy {0} for {1} code {2}",
        &[
            "Order from the shop: {0}, one piece, for {1}, post code {2}, delivered by post.",
            "Buy {0} in the shop, one piece. It is for {1} at post code {2}; post is fine.",
        ],
        &[product, &name, &code],
    );
}

fn order_several(maker: &mut Maker) {
    let quantity = maker.rng.random_range(2..4);
    let (product, name, code) = placed(maker, quantity, DELIVERIES[0]);
    maker.say(
        "buy {3} {0} for {1} code {2}",
        &[
            "Order {3} of {0} for {1}, post code {2}, by post.",
            "Get {1} {3} pieces of {0} from the shop (post code {2}, by post).",
        ],
        &[product, &name, &code, &quantity.to_string()],
    );
}

fn order_with(maker: &mut Maker) {
    let quantity = maker.rng.random_range(1..3);
    let way = maker.any(&DELIVERIES[1..]);
    let (product, name, code) = placed(maker, quantity, way);
    maker.say(
        "buy {3} {0} for {1} code {2} by {4}",
        &[
            "Order {3} of {0} for {1}, post code {2}; it should come by {4}.",
            "Buy {3} of {0} for {1} ({2}) and have it brought by {4}.",
        ],
        &[product, &name, &code, &quantity.to_string(), way],
    );
}

fn order_missing(maker: &mut Maker) {
    let [product] = maker.names(maker.words.products);
    let [person] = maker.names(maker.words.people);
    let name = person.split('@').next().unwrap_or(person);
    let code = maker.rng.random_range(1000..10000).to_string();
    maker.without(&["products", product]);
    maker.infeasible();
    maker.say(
        "buy {0} for {1} code {2}",
        &[
            "Order from the shop: {0}, one piece, for {1}, post code {2}.",
            "Buy {0}, one piece, for {1} ({2}).",
        ],
        &[product, name, &code],
    );
}
