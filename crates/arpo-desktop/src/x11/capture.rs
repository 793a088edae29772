//! Screenshots. Pixels come through memory shared with the X server (MIT-SHM), passed as a file descriptor so that it
//! works between containers; where that is not available, through the connection.

use super::pixels::{Cursor, Image, image_from_bgrx};
use super::{Connection, XError};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::os::unix::fs::FileExt;
use x11rb::connection::Connection as _;
use x11rb::protocol::shm::ConnectionExt as _;
use x11rb::protocol::xfixes::ConnectionExt as _;
use x11rb::protocol::xproto::{ConnectionExt as _, ImageFormat, ImageOrder, VisualClass};

const ALL_PLANES: u32 = !0;
const BYTES_PER_PIXEL: u64 = 4;

/// Takes screenshots.
#[derive(Debug)]
pub struct Capture {
    connection: Connection,
    shared: Option<Shared>,
    may_share: bool,
    has_cursor: bool,
}

/// Memory that the X server writes to. It is read as a file, so nothing is mapped here.
#[derive(Debug)]
struct Shared {
    segment: u32,
    memory: File,
    bytes: u64,
}

impl Capture {
    /// Opens a true-colour display with 32 bits per pixel, which is any display of depth 24.
    pub fn open(display: &str) -> Result<Self, XError> {
        let connection = Connection::open(display)?;
        is_supported(&connection)?;
        let shm = connection.x.shm_query_version()?.reply();
        let may_share = shm.is_ok_and(|version| (version.major_version, version.minor_version) >= (1, 2));
        let has_cursor = connection.x.xfixes_query_version(4, 0)?.reply().is_ok();
        Ok(Self { connection, shared: None, may_share, has_cursor })
    }

    /// The same, always through the connection.
    pub fn open_plain(display: &str) -> Result<Self, XError> {
        Ok(Self { may_share: false, ..Self::open(display)? })
    }

    /// Whether the last screenshot came through shared memory.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// The connection, for queries about the screen.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The screen as it is, without the pointer.
    pub fn screen(&mut self) -> Result<Image, XError> {
        let (width, height) = self.connection.size()?;
        self.share(width, height)?;
        let bgrx = match &self.shared {
            Some(shared) => {
                let (x, root) = (&self.connection.x, self.connection.root());
                let format = ImageFormat::Z_PIXMAP.into();
                let segment = shared.segment;
                x.shm_get_image(root, 0, 0, width, height, ALL_PLANES, format, segment, 0)?.reply()?;
                let mut bytes = vec![0; shared.bytes as usize];
                shared.memory.read_exact_at(&mut bytes, 0).map_err(|error| XError::failed(&error))?;
                bytes
            }
            None => self.plain(width, height)?,
        };
        Ok(image_from_bgrx(width.into(), height.into(), &bgrx))
    }

    /// The screen with the pointer drawn in.
    pub fn screen_with_pointer(&mut self) -> Result<Image, XError> {
        let mut screenshot = self.screen()?;
        if self.has_cursor {
            let image = self.connection.x.xfixes_get_cursor_image()?.reply()?;
            let cursor = Cursor { width: image.width.into(), argb: image.cursor_image };
            screenshot.draw(&cursor, image.x.into(), image.y.into());
        }
        Ok(screenshot)
    }

    fn plain(&self, width: u16, height: u16) -> Result<Vec<u8>, XError> {
        let root = self.connection.root();
        let image =
            self.connection.x.get_image(ImageFormat::Z_PIXMAP, root, 0, 0, width, height, ALL_PLANES)?;
        Ok(image.reply()?.data)
    }

    /// Allocates shared memory for a screen of this size. Where sharing fails, it is not tried again.
    fn share(&mut self, width: u16, height: u16) -> Result<(), XError> {
        let bytes = u64::from(width) * u64::from(height) * BYTES_PER_PIXEL;
        if let Some(old) = self.shared.take_if(|shared| shared.bytes != bytes) {
            self.connection.x.shm_detach(old.segment)?;
        }
        if self.shared.is_none() && self.may_share {
            self.shared = self.attach(bytes)?;
            self.may_share = self.shared.is_some();
        }
        Ok(())
    }

    fn attach(&self, bytes: u64) -> Result<Option<Shared>, XError> {
        let made = memfd_create("arpo-desktop-screen", MemfdFlags::CLOEXEC).map(File::from);
        let Ok(memory) = made else { return Ok(None) };
        let passed = memory.set_len(bytes).and_then(|()| memory.try_clone());
        let Ok(passed) = passed else { return Ok(None) };
        let segment = self.connection.x.generate_id()?;
        let attached = self.connection.x.shm_attach_fd(segment, passed, false);
        let is_attached = attached.is_ok_and(|attached| attached.check().is_ok());
        Ok(is_attached.then_some(Shared { segment, memory, bytes }))
    }
}

/// Checks that pixels are four bytes: blue, green, red, unused.
fn is_supported(connection: &Connection) -> Result<(), XError> {
    let (setup, screen) = (connection.x.setup(), connection.screen());
    let format = setup.pixmap_formats.iter().find(|format| format.depth == screen.root_depth);
    let visual = screen
        .allowed_depths
        .iter()
        .flat_map(|depth| &depth.visuals)
        .find(|visual| visual.visual_id == screen.root_visual);
    let is_bgrx = setup.image_byte_order == ImageOrder::LSB_FIRST
        && format.is_some_and(|format| format.bits_per_pixel == 32)
        && visual.is_some_and(|visual| {
            visual.class == VisualClass::TRUE_COLOR
                && (visual.red_mask, visual.green_mask, visual.blue_mask) == (0xff_0000, 0xff00, 0xff)
        });
    if is_bgrx {
        return Ok(());
    }
    let depth = screen.root_depth;
    Err(XError::Failed(format!(
        "a screen of depth {depth} and its colours cannot be read: expected depth 24"
    )))
}
