//! The windows of a desktop and what can be done to them, by the conventions that window managers keep (EWMH).

use super::{Connection, XError};
use x11rb::connection::Connection as _;
use x11rb::protocol::xproto::{
    AtomEnum, ClientMessageEvent, ConfigureWindowAux, ConnectionExt as _, EventMask, StackMode,
};

/// A window of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Its X id.
    pub id: u32,
    /// Its title.
    pub title: String,
    /// The first part of its `WM_CLASS`.
    pub instance: String,
    /// The second part.
    pub class: String,
}

/// A window selector, with the options of `wmctrl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowSelector {
    /// A part of the title, case-insensitive.
    pub name: String,
    /// The whole title, case-sensitive (`-F`).
    pub strict: bool,
    /// `instance.class` instead of the title (`-x`).
    pub by_class: bool,
}

impl WindowSelector {
    /// The first matching window. Task files say "Google Chrome"; where the browser is Debian's build of it, its
    /// titles say "Chromium".
    pub fn find<'a>(&self, clients: &'a [Client]) -> Option<&'a Client> {
        let named = |name: &str| {
            clients.iter().find(|client| {
                let class = || format!("{}.{}", client.instance, client.class);
                let text = if self.by_class { class() } else { client.title.clone() };
                if self.strict { text == name } else { text.to_lowercase().contains(&name.to_lowercase()) }
            })
        };
        named(&self.name).or_else(|| named(&self.name.replace("Google Chrome", "Chromium")))
    }
}

/// The window of an opened file or program: its title contains the name, or the name without its extension; a
/// case-sensitive match comes first, since a program's title may have a capital where its name has none.
pub fn showing<'a>(clients: &'a [Client], file_name: &str) -> Option<&'a Client> {
    let stem = file_name.rsplit_once('.').map_or(file_name, |(stem, _)| stem);
    let stem = if stem.is_empty() { file_name } else { stem };
    let find = |fold: fn(&str) -> String| {
        let (whole, stem) = (fold(file_name), fold(stem));
        clients.iter().find(|client| {
            let title = fold(&client.title);
            title.contains(&whole) || title.contains(&stem)
        })
    };
    find(str::to_owned).or_else(|| find(str::to_lowercase))
}

/// Lists and controls windows.
#[derive(Debug)]
pub struct Windows {
    connection: Connection,
}

/// The source of a request: the user, through a tool like a pager.
const FROM_PAGER: u32 = 2;
const ALL_OF_IT: u32 = u32::MAX / 4;

impl Windows {
    /// On a display.
    pub fn open(display: &str) -> Result<Self, XError> {
        Ok(Self { connection: Connection::open(display)? })
    }

    /// The applications' windows, oldest first. Empty without a window manager.
    pub fn list(&self) -> Result<Vec<Client>, XError> {
        let list = self.atom("_NET_CLIENT_LIST")?;
        let x = &self.connection.x;
        let ids =
            x.get_property(false, self.connection.root(), list, AtomEnum::WINDOW, 0, ALL_OF_IT)?.reply()?;
        let ids: Vec<u32> = ids.value32().map(Iterator::collect).unwrap_or_default();
        // a window may close while it is queried: skip it
        Ok(ids.into_iter().filter_map(|id| self.client(id).ok()).collect())
    }

    /// Whether the window manager keeps a part of the screen free, as it does for a panel.
    pub fn has_panel(&self) -> Result<bool, XError> {
        let area = self.atom("_NET_WORKAREA")?;
        let (x, root) = (&self.connection.x, self.connection.root());
        let area = x.get_property(false, root, area, AtomEnum::CARDINAL, 0, 4)?.reply()?;
        let area: Vec<u32> = area.value32().map(Iterator::collect).unwrap_or_default();
        let (width, height) = self.connection.size()?;
        Ok(matches!(area[..], [_, _, free_width, free_height]
            if free_width < u32::from(width) || free_height < u32::from(height)))
    }

    fn client(&self, id: u32) -> Result<Client, XError> {
        let title = match self.text(id, self.atom("_NET_WM_NAME")?)? {
            Some(title) => title,
            None => self.text(id, AtomEnum::WM_NAME.into())?.unwrap_or_default(),
        };
        let class = self.text(id, AtomEnum::WM_CLASS.into())?.unwrap_or_default();
        let mut parts = class.split('\0').map(str::to_owned);
        let (instance, class) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        Ok(Client { id, title, instance, class })
    }

    /// How large a window is, without its frame.
    pub fn size(&self, client: &Client) -> Result<(u16, u16), XError> {
        let geometry = self.connection.x.get_geometry(client.id)?.reply()?;
        Ok((geometry.width, geometry.height))
    }

    /// Brings a window to the front, with its desktop, and gives it the keyboard.
    pub fn activate(&self, client: &Client) -> Result<(), XError> {
        let (x, root) = (&self.connection.x, self.connection.root());
        let desktop = self.atom("_NET_WM_DESKTOP")?;
        let desktop = x.get_property(false, client.id, desktop, AtomEnum::CARDINAL, 0, 1)?.reply()?;
        if let Some(desktop) = desktop.value32().and_then(|mut values| values.next()) {
            self.send_message(root, "_NET_CURRENT_DESKTOP", [desktop, 0, 0, 0, 0])?;
        }
        self.send_message(client.id, "_NET_ACTIVE_WINDOW", [FROM_PAGER, 0, 0, 0, 0])?;
        x.map_window(client.id)?;
        x.configure_window(client.id, &ConfigureWindowAux::new().stack_mode(StackMode::ABOVE))?;
        self.connection.sync()
    }

    /// Asks a window to close, as its button would.
    pub fn close(&self, client: &Client) -> Result<(), XError> {
        self.send_message(client.id, "_NET_CLOSE_WINDOW", [0, FROM_PAGER, 0, 0, 0])?;
        self.connection.sync()
    }

    fn atom(&self, name: &str) -> Result<u32, XError> {
        Ok(self.connection.x.intern_atom(false, name.as_bytes())?.reply()?.atom)
    }

    fn text(&self, window: u32, property: u32) -> Result<Option<String>, XError> {
        let x = &self.connection.x;
        let reply = x.get_property(false, window, property, AtomEnum::ANY, 0, ALL_OF_IT)?.reply()?;
        let is_latin = reply.type_ == u32::from(AtomEnum::STRING);
        let text = || match String::from_utf8(reply.value.clone()) {
            Ok(text) => text,
            Err(_) if is_latin => reply.value.iter().copied().map(char::from).collect(),
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        };
        Ok((reply.type_ != 0).then(text))
    }

    /// A message for the window manager.
    fn send_message(&self, about: u32, kind: &str, data: [u32; 5]) -> Result<(), XError> {
        let event = ClientMessageEvent::new(32, about, self.atom(kind)?, data);
        let mask = EventMask::SUBSTRUCTURE_NOTIFY | EventMask::SUBSTRUCTURE_REDIRECT;
        self.connection.x.send_event(false, self.connection.root(), mask, event)?;
        self.connection.x.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients() -> Vec<Client> {
        let client = |id, title: &str, instance: &str, class: &str| Client {
            id,
            title: title.into(),
            instance: instance.into(),
            class: class.into(),
        };
        vec![
            client(1, "Untitled 1 - LibreOffice Calc", "libreoffice", "libreoffice-calc"),
            client(2, "notes.txt - Mousepad", "mousepad", "Mousepad"),
            client(3, "Notes", "xterm", "XTerm"),
            client(4, "New Tab - Chromium", "chromium", "Chromium"),
        ]
    }

    #[test]
    fn windows_are_selected_as_by_wmctrl() {
        let find = |name: &str, strict, by_class| {
            WindowSelector { name: name.into(), strict, by_class }.find(&clients()).map(|client| client.id)
        };
        assert_eq!(find("calc", false, false), Some(1));
        assert_eq!(find("NOTES", false, false), Some(2));
        assert_eq!(find("Notes", true, false), Some(3));
        assert_eq!(find("notes", true, false), None);
        assert_eq!(find("xterm.XTerm", true, true), Some(3));
        assert_eq!(find("mousepad.m", false, true), Some(2));
        assert_eq!(find("mousepad", true, true), None);
        assert_eq!(find("gimp", false, false), None);
        assert_eq!(find("Google Chrome", false, false), Some(4), "Chromium is what there is");
    }

    #[test]
    fn the_window_of_an_opened_file() {
        let found = |name| showing(&clients(), name).map(|client| client.id);
        assert_eq!(found("notes.txt"), Some(2));
        assert_eq!(found("Notes.ods"), Some(3));
        assert_eq!(found("Untitled 1.ods"), Some(1));
        assert_eq!(found("xcalc"), None);
        assert_eq!(found("libreoffice"), Some(1));
        assert_eq!(found("other.txt"), None);
    }
}
