//! Auxiliary templates with the sheet, mail and the shop.

use super::template;
use crate::apps::sheet::cell_name;
use crate::apps::shop::DELIVERIES;
use crate::tasks::builder::{TaskBuilder, Template};
use crate::tasks::office::{answer, letter, placed, received, size, table};
use crate::world::App;
use rand::RngExt;
use serde_json::json;

pub(super) const TEMPLATES: &[Template] = &[
    template("clear", App::Sheet, clear),
    template("cell-and-sum", App::Sheet, cell_and_sum),
    template("copy", App::Sheet, copy),
    template("delete-two", App::Mail, delete_two),
    template("archive-and-delete", App::Mail, archive_and_delete),
    template("reply-and-delete", App::Mail, reply_and_delete),
    template("delete-sent", App::Mail, delete_sent),
    template("archive-missing", App::Mail, archive_missing),
    template("order-by-post", App::Shop, order_by_post),
    template("several-missing", App::Shop, several_missing),
];

fn clear(builder: &mut TaskBuilder) {
    let (columns, rows) = size(builder);
    table(builder, columns, rows);
    let name = cell_name(builder.rng.random_range(0..columns), builder.rng.random_range(0..rows));
    builder.gone(&["sheet", &name]);
    builder.instruct(
        "clear {0}",
        &["Clear cell {0} of the sheet.", "Cell {0} should be empty.", "Delete what is in {0}."],
        &[&name],
    );
}

fn cell_and_sum(builder: &mut TaskBuilder) {
    let (columns, rows) = size(builder);
    let mut cells = table(builder, columns, rows);
    let column = builder.rng.random_range(0..columns);
    let (name, below) = (cell_name(column, builder.rng.random_range(0..rows)), cell_name(column, rows));
    let number = builder.rng.random_range(60..100).to_string();
    cells.insert(name.clone(), number.clone());
    let total: u32 = (0..rows).filter_map(|row| cells[&cell_name(column, row)].parse::<u32>().ok()).sum();
    builder.goal(&["sheet", &name], number.clone());
    builder.goal(&["sheet", &below], total.to_string());
    builder.partial();
    builder.instruct(
        "put {1} in {0} and sum in {2}",
        &[
            "Put {1} into {0} and then the sum of the column into {2}.",
            "{0} becomes {1}; add up the column in {2}.",
        ],
        &[&name, &number, &below],
    );
}

fn copy(builder: &mut TaskBuilder) {
    let (columns, rows) = size(builder);
    let cells = table(builder, columns, rows);
    let from = cell_name(builder.rng.random_range(0..columns), builder.rng.random_range(0..rows));
    let to = cell_name(builder.rng.random_range(0..columns), rows);
    builder.goal(&["sheet", &to], cells[&from].clone());
    builder.instruct(
        "copy {0} to {1}",
        &["Copy cell {0} to {1}.", "Cell {1} should hold the same number as {0}."],
        &[&from, &to],
    );
}

fn delete_two(builder: &mut TaskBuilder) {
    let [first, second] = builder.names(builder.words.subjects);
    for subject in [first, second] {
        received(builder, subject);
        builder.gone(&["mail", subject]);
    }
    builder.partial();
    builder.instruct(
        "delete mail {0} and mail {1}",
        &["Delete the mails {0} and {1}.", "Neither {0} nor {1} is needed: delete both messages."],
        &[first, second],
    );
}

fn archive_and_delete(builder: &mut TaskBuilder) {
    let [kept, deleted] = builder.names(builder.words.subjects);
    for subject in [kept, deleted] {
        received(builder, subject);
    }
    builder.goal(&["mail", kept, "folder"], "Archive");
    builder.gone(&["mail", deleted]);
    builder.partial();
    builder.instruct(
        "store mail {0} and delete mail {1}",
        &["Archive the mail {0} and delete {1}.", "{0} goes to the archive; throw the message {1} away."],
        &[kept, deleted],
    );
}

fn reply_and_delete(builder: &mut TaskBuilder) {
    let (subject, person) = letter(builder);
    let text = answer(builder, subject, person);
    builder.gone(&["mail", subject]);
    builder.partial();
    builder.instruct(
        "reply {1} to mail {0} and delete mail {0}",
        &["Answer the mail {0} with {1}, then delete it.", "Reply {1} to {0} and throw {0} away."],
        &[subject, text],
    );
}

fn delete_sent(builder: &mut TaskBuilder) {
    let [subject] = builder.names(builder.words.subjects);
    let [person] = builder.names(builder.words.people);
    let [text] = builder.names(builder.words.texts);
    builder.given(&["mail", subject], json!({"folder": "Sent", "person": person, "text": text}));
    builder.gone(&["mail", subject]);
    builder.instruct(
        "delete sent mail {0}",
        &["Delete the mail {0} that I sent.", "Among the sent messages, throw {0} away."],
        &[subject],
    );
}

fn archive_missing(builder: &mut TaskBuilder) {
    let [subject] = builder.names(builder.words.subjects);
    builder.without(&["mail", subject]);
    builder.infeasible();
    builder.instruct(
        "store mail {0}",
        &["Archive the mail about {0}.", "Move the message {0} to the archive."],
        &[subject],
    );
}

fn order_by_post(builder: &mut TaskBuilder) {
    let (product, name, code) = placed(builder, 1, DELIVERIES[0]);
    builder.instruct(
        "buy {0} for {1} code {2} by Post",
        &[
            "Send {0} to {1} by post: one piece, post code {2}.",
            "One {0} from the shop by post, for {1} at post code {2}.",
        ],
        &[product, &name, &code],
    );
}

fn several_missing(builder: &mut TaskBuilder) {
    let [product] = builder.names(builder.words.products);
    let [person] = builder.names(builder.words.people);
    let name = person.split('@').next().unwrap_or(person);
    let code = builder.rng.random_range(1000..10000).to_string();
    let quantity = builder.rng.random_range(2..4).to_string();
    builder.without(&["products", product]);
    builder.infeasible();
    builder.instruct(
        "buy {3} {0} for {1} code {2}",
        &["Order {3} of {0} for {1}, post code {2}.", "Buy {3} pieces of {0} for {1} ({2})."],
        &[product, name, &code, &quantity],
    );
}
