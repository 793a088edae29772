//! Templates of tasks with files and texts.

use crate::tasks::builder::{TaskBuilder, Template};
use crate::world::{App, join_path};

const fn template(name: &'static str, app: App, make: fn(&mut TaskBuilder)) -> Template {
    Template { name, app, make }
}

pub(crate) const TRAINING: &[Template] = &[
    template("delete", App::Files, delete),
    template("rename", App::Files, rename),
    template("move", App::Files, move_in),
    template("new-folder", App::Files, new_folder),
    template("delete-inside", App::Files, delete_inside),
    template("write", App::Editor, write),
    template("new-note", App::Editor, new_note),
    template("replace", App::Editor, replace),
    template("delete-missing", App::Files, delete_missing),
];

pub(crate) const HELD_OUT: &[Template] = &[
    template("rename-folder", App::Files, rename_folder),
    template("move-out", App::Files, move_out),
    template("sort-away", App::Files, sort_away),
    template("save-as", App::Editor, save_as),
    template("rename-missing", App::Files, rename_missing),
];

fn delete(builder: &mut TaskBuilder) {
    let [name] = builder.names(builder.words.files);
    let [text] = builder.names(builder.words.texts);
    builder.file(name, text);
    builder.gone(&["files", name]);
    builder.instruct(
        "delete {0}",
        &[
            "Delete the file {0}.",
            "I don't need {0} any more, please get rid of it.",
            "Please remove {0} from my files.",
        ],
        &[name],
    );
}

fn rename(builder: &mut TaskBuilder) {
    let [old, new] = builder.names(builder.words.files);
    let [text] = builder.names(builder.words.texts);
    builder.file(old, text);
    builder.without(&["files", new]);
    builder.gone(&["files", old]);
    builder.goal(&["files", new], text);
    builder.instruct(
        "rename {0} to {1}",
        &["Rename {0} to {1}.", "The file {0} should be called {1} instead.", "Give {0} a new name: {1}."],
        &[old, new],
    );
}

fn move_in(builder: &mut TaskBuilder) {
    let [name] = builder.names(builder.words.files);
    let [folder] = builder.names(builder.words.folders);
    let [text] = builder.names(builder.words.texts);
    let path = join_path(folder, name);
    builder.file(name, text);
    builder.given(&["folders", folder], folder);
    builder.without(&["files", &path]);
    builder.gone(&["files", name]);
    builder.goal(&["files", &path], text);
    builder.instruct(
        "move {0} to {1}",
        &[
            "Move {0} into the folder {1}.",
            "Put {0} in {1}, please.",
            "{0} belongs in the {1} folder; move it there.",
        ],
        &[name, folder],
    );
}

fn new_folder(builder: &mut TaskBuilder) {
    let [folder] = builder.names(builder.words.folders);
    let files: Vec<String> = builder.words.files.iter().map(|file| join_path(folder, file)).collect();
    for file in &files {
        builder.without(&["files", file]);
    }
    builder.without(&["folders", folder]);
    builder.goal(&["folders", folder], folder);
    builder.instruct(
        "new folder {0}",
        &[
            "Create a folder named {0}.",
            "I need a new folder called {0}.",
            "Make me a folder that is called {0}.",
        ],
        &[folder],
    );
}

fn delete_inside(builder: &mut TaskBuilder) {
    let [name] = builder.names(builder.words.files);
    let [folder] = builder.names(builder.words.folders);
    let [text] = builder.names(builder.words.texts);
    let path = join_path(folder, name);
    builder.file(&path, text);
    builder.gone(&["files", &path]);
    builder.instruct(
        "delete {0} in {1}",
        &[
            "Delete {0}, which is in the folder {1}.",
            "Inside {1} there is a file {0}. Throw it away.",
            "Remove {0} from the {1} folder.",
        ],
        &[name, folder],
    );
}

fn write(builder: &mut TaskBuilder) {
    let [name] = builder.names(builder.words.files);
    let [old, new] = builder.names(builder.words.texts);
    builder.file(name, old);
    builder.goal(&["files", name], new);
    builder.instruct(
        "write {1} in {0}",
        &[
            "Change the text of {0} to just \"{1}\" and save it.",
            "{0} should contain nothing but the word {1}. Please edit and save it.",
            "Open {0}, replace everything in it with {1}, and save.",
        ],
        &[name, new],
    );
}

fn new_note(builder: &mut TaskBuilder) {
    let [name] = builder.names(builder.words.files);
    let [text] = builder.names(builder.words.texts);
    builder.without(&["files", name]);
    builder.goal(&["files", name], text);
    builder.instruct(
        "new note {0} with {1}",
        &[
            "Create a text file {0} that says {1}.",
            "Write the word {1} in a new file and save it as {0}.",
            "I'd like a new file called {0} with the text {1} in it.",
        ],
        &[name, text],
    );
}

fn replace(builder: &mut TaskBuilder) {
    let [name] = builder.names(builder.words.files);
    let [old, other, new] = builder.names(builder.words.texts);
    let before = format!("{old} {other} {old}");
    builder.file(name, &before);
    builder.goal(&["files", name], before.replace(old, new));
    builder.instruct(
        "in {0} change {1} to {2}",
        &[
            "In {0}, replace every {1} with {2} and save the file.",
            "Wherever {0} says {1} it should say {2}. Save it afterwards.",
            "Use find and replace in {0} to turn {1} into {2}, then save.",
        ],
        &[name, old, new],
    );
}

fn delete_missing(builder: &mut TaskBuilder) {
    let [name] = builder.names(builder.words.files);
    for file in builder.words.files {
        builder.without(&["files", file]);
    }
    let paths: Vec<String> = builder.words.folders.iter().map(|folder| join_path(folder, name)).collect();
    for path in &paths {
        builder.without(&["files", path]);
    }
    builder.infeasible();
    builder.instruct(
        "delete {0}",
        &["Delete the file {0}.", "Please throw {0} away.", "Remove {0}, wherever it is."],
        &[name],
    );
}

fn rename_folder(builder: &mut TaskBuilder) {
    let [old, new] = builder.names(builder.words.folders);
    let [name] = builder.names(builder.words.files);
    let [text] = builder.names(builder.words.texts);
    // the folder holds one file, so that the final state is known
    let all: Vec<String> = [old, new]
        .iter()
        .flat_map(|folder| builder.words.files.iter().map(|file| join_path(folder, file)))
        .collect();
    for path in &all {
        builder.without(&["files", path]);
    }
    builder.without(&["folders", new]);
    builder.file(&join_path(old, name), text);
    builder.gone(&["folders", old]);
    builder.goal(&["folders", new], new);
    builder.gone(&["files", &join_path(old, name)]);
    builder.goal(&["files", &join_path(new, name)], text);
    builder.instruct(
        "rename folder {0} to {1}",
        &[
            "Rename the folder {0} to {1}.",
            "The {0} folder should be named {1}.",
            "From now on the folder {0} is to be called {1}.",
        ],
        &[old, new],
    );
}

fn move_out(builder: &mut TaskBuilder) {
    let [name] = builder.names(builder.words.files);
    let [folder] = builder.names(builder.words.folders);
    let [text] = builder.names(builder.words.texts);
    let path = join_path(folder, name);
    builder.file(&path, text);
    builder.without(&["files", name]);
    builder.gone(&["files", &path]);
    builder.goal(&["files", name], text);
    builder.instruct(
        "move {0} from {1} to Top",
        &[
            "Move {0} out of {1} to the top folder.",
            "{0} lies in {1} but belongs in Top. Move it there.",
            "Take {0} out of the folder {1} and put it in Top.",
        ],
        &[name, folder],
    );
}

fn sort_away(builder: &mut TaskBuilder) {
    let [name] = builder.names(builder.words.files);
    let [folder] = builder.names(builder.words.folders);
    let [text] = builder.names(builder.words.texts);
    let inside: Vec<String> = builder.words.files.iter().map(|file| join_path(folder, file)).collect();
    for path in &inside {
        builder.without(&["files", path]);
    }
    builder.without(&["folders", folder]);
    builder.file(name, text);
    builder.goal(&["folders", folder], folder);
    builder.gone(&["files", name]);
    builder.goal(&["files", &join_path(folder, name)], text);
    builder.instruct(
        "new folder {1} and move {0} to {1}",
        &[
            "Make a new folder {1} and move {0} into it.",
            "I want {0} in a folder of its own called {1}.",
            "Create the folder {1}, then put {0} there.",
        ],
        &[name, folder],
    );
}

fn save_as(builder: &mut TaskBuilder) {
    let [old, new] = builder.names(builder.words.files);
    let [text] = builder.names(builder.words.texts);
    builder.file(old, text);
    builder.without(&["files", new]);
    builder.goal(&["files", new], text);
    builder.instruct(
        "save {0} as {1}",
        &[
            "Save a copy of {0} under the name {1}.",
            "Make a second file {1} with the same text as {0}; keep {0}.",
            "Open {0} in the editor and save it as {1}.",
        ],
        &[old, new],
    );
}

fn rename_missing(builder: &mut TaskBuilder) {
    let [old, new] = builder.names(builder.words.files);
    builder.without(&["files", old]);
    let paths: Vec<String> = builder.words.folders.iter().map(|folder| join_path(folder, old)).collect();
    for path in &paths {
        builder.without(&["files", path]);
    }
    builder.infeasible();
    builder.instruct(
        "rename {0} to {1}",
        &["Rename {0} to {1}.", "The file {0} should be called {1} instead."],
        &[old, new],
    );
}
