//! Screenshots.

use crate::display::{Display, HEIGHT, WIDTH, Witness};
use arpo_desktop::x11::XError;
use arpo_desktop::x11::capture::Capture;
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{ConnectionExt, CreateGCAux, Rectangle};

#[test]
fn shared_memory_and_connection_give_the_same_image() {
    let Some(display) = Display::start() else { return };
    let witness = Witness::new(&display);
    let pen = witness.x.generate_id().unwrap();
    for (step, colour) in [0x00ff_0000_u32, 0x0000_ff00, 0x0000_00ff].into_iter().enumerate() {
        witness.x.create_gc(pen, witness.window, &CreateGCAux::new().foreground(colour)).unwrap();
        let x = 10 + 30 * i16::try_from(step).unwrap();
        let square = Rectangle { x, y: 20, width: 25, height: 25 };
        witness.x.poly_fill_rectangle(witness.window, pen, &[square]).unwrap();
        witness.x.free_gc(pen).unwrap();
    }
    witness.events();

    let mut shared = Capture::open(&display.name).unwrap();
    let mut plain = Capture::open_plain(&display.name).unwrap();
    let image = shared.screen().unwrap();
    assert!(shared.is_shared(), "shared memory is not used");
    assert_eq!(image, plain.screen().unwrap());
    assert!(!plain.is_shared());
    assert_eq!((image.width, image.height), (WIDTH.into(), HEIGHT.into()));
    let pixel = |x: usize, y: usize| &image.rgb[(y * usize::from(WIDTH) + x) * 3..][..3];
    assert_eq!(pixel(0, 0), [0x12, 0x34, 0x56]);
    assert_eq!(
        (pixel(15, 25), pixel(45, 25), pixel(75, 25)),
        (&[255, 0, 0][..], &[0, 255, 0][..], &[0, 0, 255][..])
    );
    assert_eq!(shared.screen_with_pointer().unwrap(), plain.screen_with_pointer().unwrap());
}

#[test]
fn the_pointer_is_drawn_where_it_points() {
    let Some(display) = Display::start() else { return };
    let witness = Witness::new(&display);
    witness.x.warp_pointer(x11rb::NONE, witness.root, 0, 0, 0, 0, 300, 200).unwrap();
    witness.events();
    let mut capture = Capture::open(&display.name).unwrap();
    assert_eq!(capture.connection().pointer().unwrap(), (300, 200));
    let (without, with) = (capture.screen().unwrap(), capture.screen_with_pointer().unwrap());
    let changed: Vec<(usize, usize)> = (0..with.rgb.len() / 3)
        .filter(|at| without.rgb[at * 3..at * 3 + 3] != with.rgb[at * 3..at * 3 + 3])
        .map(|at| (at % usize::from(WIDTH), at / usize::from(WIDTH)))
        .collect();
    assert!(!changed.is_empty(), "no pointer");
    // its corner is at the point, so nothing of it is to the left or above
    assert!(changed.iter().all(|&(x, y)| (300..364).contains(&x) && (200..264).contains(&y)), "{changed:?}");
}

#[test]
fn a_display_that_is_not_there_is_an_error() {
    assert!(matches!(Capture::open(":9999"), Err(XError::Unopened { .. })));
}
