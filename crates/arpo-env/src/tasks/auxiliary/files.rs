//! Auxiliary templates with files and texts.

use super::template;
use crate::tasks::builder::{TaskBuilder, Template};
use crate::world::{App, join_path};

pub(super) const TEMPLATES: &[Template] = &[
    template("delete-folder", App::Files, delete_folder),
    template("move-across", App::Files, move_across),
    template("rename-inside", App::Files, rename_inside),
    template("move-two", App::Files, move_two),
    template("new-folder-and-delete", App::Files, new_folder_and_delete),
    template("move-missing", App::Files, move_missing),
    template("write-inside", App::Editor, write_inside),
    template("replace-missing", App::Editor, replace_missing),
];

/// Takes everything out of a folder.
fn empty(builder: &mut TaskBuilder, folder: &str) {
    for file in builder.words.files {
        builder.without(&["files", &join_path(folder, file)]);
    }
}

fn delete_folder(builder: &mut TaskBuilder) {
    let [folder] = builder.names(builder.words.folders);
    let [name] = builder.names(builder.words.files);
    let [text] = builder.names(builder.words.texts);
    // the folder holds one file, so that the final state is known
    empty(builder, folder);
    let path = join_path(folder, name);
    builder.file(&path, text);
    builder.gone(&["folders", folder]);
    builder.gone(&["files", &path]);
    builder.instruct(
        "delete folder {0}",
        &[
            "Delete the folder {0}.",
            "Throw away the {0} folder with everything in it.",
            "I don't need the folder {0} any more.",
        ],
        &[folder],
    );
}

fn move_across(builder: &mut TaskBuilder) {
    let [name] = builder.names(builder.words.files);
    let [from, to] = builder.names(builder.words.folders);
    let [text] = builder.names(builder.words.texts);
    let (old, new) = (join_path(from, name), join_path(to, name));
    builder.file(&old, text);
    builder.given(&["folders", to], to);
    builder.without(&["files", &new]);
    builder.gone(&["files", &old]);
    builder.goal(&["files", &new], text);
    builder.instruct(
        "move {0} in {1} to {2}",
        &[
            "Move {0} from the folder {1} to {2}.",
            "{0} is in {1} but belongs in {2}; move it.",
            "Take {0} out of {1} and put it into the folder {2}.",
        ],
        &[name, from, to],
    );
}

fn rename_inside(builder: &mut TaskBuilder) {
    let [old, new] = builder.names(builder.words.files);
    let [folder] = builder.names(builder.words.folders);
    let [text] = builder.names(builder.words.texts);
    let (before, after) = (join_path(folder, old), join_path(folder, new));
    builder.file(&before, text);
    builder.without(&["files", &after]);
    builder.gone(&["files", &before]);
    builder.goal(&["files", &after], text);
    builder.instruct(
        "rename {0} in {2} to {1}",
        &[
            "Rename {0} in the folder {2} to {1}.",
            "Inside {2} there is a file {0}; call it {1} instead.",
            "The file {0} of the {2} folder gets a new name: {1}.",
        ],
        &[old, new, folder],
    );
}

fn move_two(builder: &mut TaskBuilder) {
    let names: [&str; 2] = builder.names(builder.words.files);
    let texts: [&str; 2] = builder.names(builder.words.texts);
    let [folder] = builder.names(builder.words.folders);
    builder.given(&["folders", folder], folder);
    for (name, text) in names.into_iter().zip(texts) {
        let path = join_path(folder, name);
        builder.file(name, text);
        builder.without(&["files", &path]);
        builder.gone(&["files", name]);
        builder.goal(&["files", &path], text);
    }
    builder.partial();
    builder.instruct(
        "move {0} and {1} to {2}",
        &["Move {0} and {1} into the folder {2}.", "Both {0} and {1} belong in the {2} folder."],
        &[names[0], names[1], folder],
    );
}

fn new_folder_and_delete(builder: &mut TaskBuilder) {
    let [folder] = builder.names(builder.words.folders);
    let [name] = builder.names(builder.words.files);
    let [text] = builder.names(builder.words.texts);
    empty(builder, folder);
    builder.without(&["folders", folder]);
    builder.file(name, text);
    builder.goal(&["folders", folder], folder);
    builder.gone(&["files", name]);
    builder.partial();
    builder.instruct(
        "new folder {0} and delete {1}",
        &["Make a folder {0} and delete the file {1}.", "I need a new folder {0}; {1} can go."],
        &[folder, name],
    );
}

/// A file that is nowhere.
fn nowhere(builder: &mut TaskBuilder) -> &'static str {
    let [name] = builder.names(builder.words.files);
    builder.without(&["files", name]);
    for folder in builder.words.folders {
        builder.without(&["files", &join_path(folder, name)]);
    }
    name
}

fn move_missing(builder: &mut TaskBuilder) {
    let name = nowhere(builder);
    let [folder] = builder.names(builder.words.folders);
    builder.given(&["folders", folder], folder);
    builder.infeasible();
    builder.instruct(
        "move {0} to {1}",
        &["Move {0} into the folder {1}.", "{0} should be in {1}; move it there."],
        &[name, folder],
    );
}

fn write_inside(builder: &mut TaskBuilder) {
    let [name] = builder.names(builder.words.files);
    let [folder] = builder.names(builder.words.folders);
    let [old, new] = builder.names(builder.words.texts);
    let path = join_path(folder, name);
    builder.file(&path, old);
    builder.goal(&["files", &path], new);
    builder.instruct(
        "write {1} in {0} of {2}",
        &[
            "Change the text of {0} in the folder {2} to just \"{1}\" and save it.",
            "The file {0} of the {2} folder should say {1} and nothing else.",
        ],
        &[name, new, folder],
    );
}

fn replace_missing(builder: &mut TaskBuilder) {
    let name = nowhere(builder);
    let [old, new] = builder.names(builder.words.texts);
    builder.infeasible();
    builder.instruct(
        "in {0} change {1} to {2}",
        &["In {0}, replace every {1} with {2} and save the file.", "Turn {1} into {2} in the file {0}."],
        &[name, old, new],
    );
}
