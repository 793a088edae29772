//! The list of windows, and the messages for a window manager. There is none here: the test stands in for it.

use crate::display::{Display, Witness};
use arpo_desktop::x11::windows::{WindowSelector, Windows};
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{AtomEnum, ChangeWindowAttributesAux, ConnectionExt, EventMask, PropMode};
use x11rb::wrapper::ConnectionExt as _;

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
    assert_eq!(windows.size(client).unwrap(), (crate::display::WIDTH, crate::display::HEIGHT));

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
