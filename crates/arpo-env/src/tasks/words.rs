//! The word lists that worlds and tasks are made from, per suite.

/// Names of everything in a world.
#[derive(Debug)]
pub(crate) struct Words {
    /// Switches: (page, name).
    pub(crate) switches: &'static [(&'static str, &'static str)],
    /// Levels: (page, name, largest).
    pub(crate) levels: &'static [(&'static str, &'static str, u32)],
    /// Choices: (page, name, options, as a drop-down list).
    pub(crate) choices: &'static [(&'static str, &'static str, &'static [&'static str], bool)],
    pub(crate) folders: &'static [&'static str],
    pub(crate) files: &'static [&'static str],
    /// Texts of files and messages, one word each.
    pub(crate) texts: &'static [&'static str],
    pub(crate) people: &'static [&'static str],
    pub(crate) subjects: &'static [&'static str],
    pub(crate) songs: &'static [&'static str],
    pub(crate) products: &'static [&'static str],
    /// Settings that do not exist.
    pub(crate) missing: &'static [&'static str],
    pub(crate) notices: &'static [&'static str],
}

impl Words {
    /// The names that differ from world to world: of files, people, songs and so on. Settings and notices keep theirs.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        let lists = [
            self.folders,
            self.files,
            self.texts,
            self.people,
            self.subjects,
            self.songs,
            self.products,
            self.missing,
        ];
        lists.into_iter().flatten().copied()
    }

    /// The names of settings, their pages and their choices.
    pub(crate) fn settings(&self) -> impl Iterator<Item = &'static str> + use<> {
        let switches = self.switches.iter().flat_map(|(page, name)| [*page, *name]);
        let levels = self.levels.iter().flat_map(|(page, name, _)| [*page, *name]);
        let choices = self
            .choices
            .iter()
            .flat_map(|(page, name, options, _)| [*page, *name].into_iter().chain(options.iter().copied()));
        switches.chain(levels).chain(choices)
    }
}

/// The pocket suite: at most six characters, a small vocabulary.
pub(crate) const POCKET: Words = Words {
    switches: &[("Sound", "Beep"), ("Sound", "Ring"), ("Net", "Wifi"), ("Net", "Sync"), ("Net", "Share")],
    levels: &[("Sound", "Bass", 10), ("Screen", "Light", 10)],
    choices: &[
        ("Screen", "Color", &["Red", "Blue", "Green"], false),
        ("Net", "Speed", &["Slow", "Medium", "Fast"], true),
    ],
    folders: &["docs", "pics", "work", "club", "old", "box"],
    files: &["cat", "dog", "sun", "map", "tree", "fish", "bird", "cake", "rose", "moon", "book", "boat"],
    texts: &["red", "tea", "milk", "bread", "snow", "rain", "gold", "wood", "salt", "corn", "rice", "plum"],
    people: &["Ana", "Ben", "Eva", "Max", "Tom", "Zoe"],
    subjects: &["Lunch", "Trip", "Rent", "Party", "Car", "Game", "Bill", "Photo"],
    songs: &["Wind", "Stars", "River", "Dance", "Fire", "Ocean", "Storm", "Hills"],
    products: &["Lamp", "Cup", "Hat", "Pen", "Bag", "Clock"],
    missing: &["Radar", "Laser", "Robot", "Drone"],
    notices: &["Hello", "New mail", "Update done"],
};

/// The desktop suite.
pub(crate) const DESKTOP: Words = Words {
    switches: &[
        ("Network", "Wi-Fi"),
        ("Network", "Bluetooth"),
        ("Network", "Airplane mode"),
        ("Display", "Night light"),
        ("Display", "Screen saver"),
        ("Sound", "Startup sound"),
        ("Sound", "Key clicks"),
        ("Privacy", "Location"),
        ("Privacy", "Usage reports"),
    ],
    levels: &[("Display", "Brightness", 20), ("Sound", "Alert volume", 20), ("Sound", "Balance", 10)],
    choices: &[
        ("Display", "Text size", &["Small", "Medium", "Large"], false),
        ("Privacy", "Lock after", &["1 minute", "5 minutes", "30 minutes", "Never"], true),
        ("Network", "Proxy", &["None", "Automatic", "Manual"], true),
    ],
    folders: &[
        "Documents",
        "Pictures",
        "Projects",
        "Invoices",
        "Archive 2024",
        "Recipes",
        "Travel",
        "Drafts",
    ],
    files: &[
        "report.txt",
        "budget.txt",
        "notes.txt",
        "shopping.txt",
        "letter.txt",
        "agenda.txt",
        "minutes.txt",
        "recipe.txt",
        "contacts.txt",
        "ideas.txt",
        "journal.txt",
        "summary.txt",
        "packing.txt",
        "résumé.txt",
    ],
    texts: &[
        "meeting", "coffee", "invoice", "garden", "holiday", "museum", "bicycle", "kitchen", "concert",
        "weather", "library", "festival", "señora", "Zürich",
    ],
    people: &[
        "alice@example.com",
        "bruno@example.com",
        "carla@example.com",
        "dmitri@example.com",
        "elena@example.com",
        "farid@example.com",
    ],
    subjects: &[
        "Team lunch",
        "Quarterly report",
        "Invoice 4821",
        "Flight details",
        "Book club",
        "Garden party",
        "Server outage",
        "Summer photos",
        "Contract draft",
        "Birthday plans",
    ],
    songs: &[
        "Morning Rain",
        "Blue Harbour",
        "Paper Planes",
        "Night Drive",
        "Golden Hour",
        "Silent Woods",
        "Café Lumière",
        "Northern Lights",
        "Long Way Home",
        "Slow Train",
    ],
    products: &[
        "Desk lamp",
        "Coffee mug",
        "Notebook",
        "Backpack",
        "Headphones",
        "Wall clock",
        "Water bottle",
    ],
    missing: &["Telepathy mode", "Hologram display", "Solar charging", "Voice of the house"],
    notices: &[
        "A new version is available.",
        "Your backup is complete.",
        "The printer is out of paper.",
        "Remember to take a break.",
    ],
};

/// The words of a suite.
pub(crate) fn words(pocket: bool) -> &'static Words {
    if pocket { &POCKET } else { &DESKTOP }
}
