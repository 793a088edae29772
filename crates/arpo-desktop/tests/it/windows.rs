//! The list of windows, and the messages for a window manager. There is none here: the test stands in for it.

use crate::display::{Display, HEIGHT, WIDTH, Witness};
use arpo_desktop::x11::windows::{WindowSelector, Windows};
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{AtomEnum, ChangeWindowAttributesAux, ConnectionExt, EventMask, PropMode};
use x11rb::wrapper::ConnectionExt as _;

#[test]
fn a_panel_is_known_by_the_room_it_takes() {
    let Some(display) = Display::start() else { return };
    let witness = Witness::new(&display);
    let windows = Windows::open(&display.name).unwrap();
    assert!(!windows.has_panel().unwrap(), "without a window manager");
    let work_area = |height: u16| {
        let name = atom(&witness, "_NET_WORKAREA");
        // of two workspaces, of which the first counts
        let areas = [0, 0, WIDTH.into(), height.into(), 0, 0, 1, 1];
        witness
            .x
            .change_property32(PropMode::REPLACE, witness.root, name, AtomEnum::CARDINAL, &areas)
            .unwrap();
        witness.events();
        windows.has_panel().unwrap()
    };
    assert!(!work_area(HEIGHT));
    assert!(work_area(HEIGHT - 44));
}

fn atom(witness: &Witness, name: &str) -> u32 {
    witness.x.intern_atom(false, name.as_bytes()).unwrap().reply().unwrap().atom
}

#[test]
fn windows_are_listed_activated_and_closed() {
    let Some(display) = Display::start() else { return };
    let witness = Witness::new(&display);
    let (x, window) = (&witness.x, witness.window);
    let windows = Windows::open(&display.name).unwrap();
    assert_eq!(windows.list().unwrap(), []);

    let utf8 = atom(&witness, "UTF8_STRING");
    x.change_property8(
        PropMode::REPLACE,
        window,
        atom(&witness, "_NET_WM_NAME"),
        utf8,
        "Größe.txt".as_bytes(),
    )
    .unwrap();
    x.change_property8(PropMode::REPLACE, window, AtomEnum::WM_CLASS, AtomEnum::STRING, b"pad\0Pad\0")
        .unwrap();
    // the second is gone already, as happens
    let list = [window, 0x00ab_cdef];
    x.change_property32(
        PropMode::REPLACE,
        witness.root,
        atom(&witness, "_NET_CLIENT_LIST"),
        AtomEnum::WINDOW,
        &list,
    )
    .unwrap();
    let listen = ChangeWindowAttributesAux::new().event_mask(EventMask::SUBSTRUCTURE_NOTIFY);
    x.change_window_attributes(witness.root, &listen).unwrap();
    witness.events();

    let clients = windows.list().unwrap();
    assert_eq!(clients.len(), 1);
    let client =
        WindowSelector { name: "größe".into(), strict: false, by_class: false }.find(&clients).unwrap();
    assert_eq!((client.id, client.instance.as_str(), client.class.as_str()), (window, "pad", "Pad"));
    assert_eq!(windows.size(client).unwrap(), (WIDTH, HEIGHT));

    windows.activate(client).unwrap();
    windows.close(client).unwrap();
    let received = ["_NET_ACTIVE_WINDOW", "_NET_CLOSE_WINDOW"].map(|name| {
        let kind = atom(&witness, name);
        witness.wait(name, |event| match event {
            Event::ClientMessage(message) if message.type_ == kind => Some(message.window),
            _ => None,
        })
    });
    assert_eq!(received, [window, window]);
}
