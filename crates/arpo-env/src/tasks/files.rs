//! Templates of tasks with files and texts.

use crate::tasks::maker::{Maker, Template};
use crate::world::{App, join_path};

const fn template(name: &'static str, app: App, make: fn(&mut Maker)) -> Template {
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

fn delete(maker: &mut Maker) {
    let [name] = maker.names(maker.words.files);
    let [text] = maker.names(maker.words.texts);
    maker.file(name, text);
    maker.gone(&["files", name]);
    maker.say(
        "delete {0}",
        &[
            "Delete the file {0}.",
            "I don't need {0} any more, please get rid of it.",
            "Please remove {0} from my files.",
        ],
        &[name],
    );
}

fn rename(maker: &mut Maker) {
    let [old, new] = maker.names(maker.words.files);
    let [text] = maker.names(maker.words.texts);
    maker.file(old, text);
    maker.without(&["files", new]);
    maker.gone(&["files", old]);
    maker.goal(&["files", new], text);
    maker.say(
        "rename {0} to {1}",
        &["Rename {0} to {1}.", "The file {0} should be called {1} instead.", "Give {0} a new name: {1}."],
        &[old, new],
    );
}

fn move_in(maker: &mut Maker) {
    let [name] = maker.names(maker.words.files);
    let [folder] = maker.names(maker.words.folders);
    let [text] = maker.names(maker.words.texts);
    let path = join_path(folder, name);
    maker.file(name, text);
    maker.given(&["folders", folder], folder);
    maker.without(&["files", &path]);
    maker.gone(&["files", name]);
    maker.goal(&["files", &path], text);
    maker.say(
        "move {0} to {1}",
        &[
            "Move {0} into the folder {1}.",
            "Put {0} in {1}, please.",
            "{0} belongs in the {1} folder; move it there.",
        ],
        &[name, folder],
    );
}

fn new_folder(maker: &mut Maker) {
    let [folder] = maker.names(maker.words.folders);
    let files: Vec<String> = maker.words.files.iter().map(|file| join_path(folder, file)).collect();
    for file in &files {
        maker.without(&["files", file]);
    }
    maker.without(&["folders", folder]);
    maker.goal(&["folders", folder], folder);
    maker.say(
        "new folder {0}",
        &[
            "Create a folder named {0}.",
            "I need a new folder called {0}.",
            "Make me a folder that is called {0}.",
        ],
        &[folder],
    );
}

fn delete_inside(maker: &mut Maker) {
    let [name] = maker.names(maker.words.files);
    let [folder] = maker.names(maker.words.folders);
    let [text] = maker.names(maker.words.texts);
    let path = join_path(folder, name);
    maker.file(&path, text);
    maker.gone(&["files", &path]);
    maker.say(
        "delete {0} in {1}",
        &[
            "Delete {0}, which is in the folder {1}.",
            "Inside {1} there is a file {0}. Throw it away.",
            "Remove {0} from the {1} folder.",
        ],
        &[name, folder],
    );
}

fn write(maker: &mut Maker) {
    let [name] = maker.names(maker.words.files);
    let [old, new] = maker.names(maker.words.texts);
    maker.file(name, old);
    maker.goal(&["files", name], new);
    maker.say(
        "write {1} in {0}",
        &[
            "Change the text of {0} to just \"{1}\" and save it.",
            "{0} should contain nothing but the word {1}. Please edit and save it.",
            "Open {0}, replace everything in it with {1}, and save.",
        ],
        &[name, new],
    );
}

fn new_note(maker: &mut Maker) {
    let [name] = maker.names(maker.words.files);
    let [text] = maker.names(maker.words.texts);
    maker.without(&["files", name]);
    maker.goal(&["files", name], text);
    maker.say(
        "new note {0} with {1}",
        &[
            "Create a text file {0} that says {1}.",
            "Write the word {1} in a new file and save it as {0}.",
            "I'd like a new file called {0} with the text {1} in it.",
        ],
        &[name, text],
    );
}

fn replace(maker: &mut Maker) {
    let [name] = maker.names(maker.words.files);
    let [old, other, new] = maker.names(maker.words.texts);
    let before = format!("{old} {other} {old}");
    maker.file(name, &before);
    maker.goal(&["files", name], before.replace(old, new));
    maker.say(
        "in {0} change {1} to {2}",
        &[
            "In {0}, replace every {1} with {2} and save the file.",
            "Wherever {0} says {1} it should say {2}. Save it afterwards.",
            "Use find and replace in {0} to turn {1} into {2}, then save.",
        ],
        &[name, old, new],
    );
}

fn delete_missing(maker: &mut Maker) {
    let [name] = maker.names(maker.words.files);
    for file in maker.words.files {
        maker.without(&["files", file]);
    }
    let paths: Vec<String> = maker.words.folders.iter().map(|folder| join_path(folder, name)).collect();
    for path in &paths {
        maker.without(&["files", path]);
    }
    maker.infeasible();
    maker.say(
        "delete {0}",
        &["Delete the file {0}.", "Please throw {0} away.", "Remove {0}, wherever it is."],
        &[name],
    );
}

fn rename_folder(maker: &mut Maker) {
    let [old, new] = maker.names(maker.words.folders);
    let [name] = maker.names(maker.words.files);
    let [text] = maker.names(maker.words.texts);
    // the folder holds one file, so that what is to be at the end is known
    let all: Vec<String> = [old, new]
        .iter()
        .flat_map(|folder| maker.words.files.iter().map(|file| join_path(folder, file)))
        .collect();
    for path in &all {
        maker.without(&["files", path]);
    }
    maker.without(&["folders", new]);
    maker.file(&join_path(old, name), text);
    maker.gone(&["folders", old]);
    maker.goal(&["folders", new], new);
    maker.gone(&["files", &join_path(old, name)]);
    maker.goal(&["files", &join_path(new, name)], text);
    maker.say(
        "rename folder {0} to {1}",
        &[
            "Rename the folder {0} to {1}.",
            "The {0} folder should be named {1}.",
            "From now on the folder {0} is to be called {1}.",
        ],
        &[old, new],
    );
}

fn move_out(maker: &mut Maker) {
    let [name] = maker.names(maker.words.files);
    let [folder] = maker.names(maker.words.folders);
    let [text] = maker.names(maker.words.texts);
    let path = join_path(folder, name);
    maker.file(&path, text);
    maker.without(&["files", name]);
    maker.gone(&["files", &path]);
    maker.goal(&["files", name], text);
    maker.say(
        "move {0} from {1} to Top",
        &[
            "Move {0} out of {1} to the top folder.",
            "{0} lies in {1} but belongs in Top. Move it there.",
            "Take {0} out of the folder {1} and put it in Top.",
        ],
        &[name, folder],
    );
}

fn sort_away(maker: &mut Maker) {
    let [name] = maker.names(maker.words.files);
    let [folder] = maker.names(maker.words.folders);
    let [text] = maker.names(maker.words.texts);
    let inside: Vec<String> = maker.words.files.iter().map(|file| join_path(folder, file)).collect();
    for path in &inside {
        maker.without(&["files", path]);
    }
    maker.without(&["folders", folder]);
    maker.file(name, text);
    maker.goal(&["folders", folder], folder);
    maker.gone(&["files", name]);
    maker.goal(&["files", &join_path(folder, name)], text);
    maker.say(
        "new folder {1} and move {0} to {1}",
        &[
            "Make a new folder {1} and move {0} into it.",
            "I want {0} in a folder of its own called {1}.",
            "Create the folder {1}, then put {0} there.",
        ],
        &[name, folder],
    );
}

fn save_as(maker: &mut Maker) {
    let [old, new] = maker.names(maker.words.files);
    let [text] = maker.names(maker.words.texts);
    maker.file(old, text);
    maker.without(&["files", new]);
    maker.goal(&["files", new], text);
    maker.say(
        "save {0} as {1}",
        &[
            "Save a copy of {0} under the name {1}.",
            "Make a second file {1} with the same text as {0}; keep {0}.",
            "Open {0} in the editor and save it as {1}.",
        ],
        &[old, new],
    );
}

fn rename_missing(maker: &mut Maker) {
    let [old, new] = maker.names(maker.words.files);
    maker.without(&["files", old]);
    let paths: Vec<String> = maker.words.folders.iter().map(|folder| join_path(folder, old)).collect();
    for path in &paths {
        maker.without(&["files", path]);
    }
    maker.infeasible();
    maker.say(
        "rename {0} to {1}",
        &["Rename {0} to {1}.", "The file {0} should be called {1} instead."],
        &[old, new],
    );
}
