//! TensorBoard's events as protocol buffers, written by hand: a version, scalars, images and texts. The numbers are those of
//! the fields in TensorFlow's `event.proto`, `summary.proto` and `tensor.proto`.

/// One event: values of a step.
#[derive(Debug, Clone)]
pub struct Event {
    time: f64,
    step: u64,
    values: Vec<Vec<u8>>,
}

impl Event {
    /// An event without values, at a time in Unix seconds.
    pub fn new(time: f64, step: u64) -> Self {
        Self { time, step, values: vec![] }
    }

    /// Adds a number.
    #[must_use]
    pub fn scalar(mut self, tag: &str, value: f32) -> Self {
        let mut message = Message::default();
        message.bytes(1, tag.as_bytes());
        message.fixed_32(2, value.to_bits());
        self.values.push(message.0);
        self
    }

    /// Adds an image: a PNG of RGB pixels.
    #[must_use]
    pub fn image(mut self, tag: &str, png: &[u8], (width, height): (u32, u32)) -> Self {
        const RGB: u64 = 3;
        let mut image = Message::default();
        image.number(1, u64::from(height));
        image.number(2, u64::from(width));
        image.number(3, RGB);
        image.bytes(4, png);
        let mut message = Message::default();
        message.bytes(1, tag.as_bytes());
        message.bytes(4, &image.0);
        self.values.push(message.0);
        self
    }

    /// Adds a text, which TensorBoard shows as Markdown.
    #[must_use]
    pub fn text(mut self, tag: &str, text: &str) -> Self {
        const STRING: u64 = 7;
        let mut plugin = Message::default();
        plugin.bytes(1, b"text");
        let mut metadata = Message::default();
        metadata.bytes(1, &plugin.0);
        // a scalar: a shape without dimensions
        let mut tensor = Message::default();
        tensor.number(1, STRING);
        tensor.bytes(2, &[]);
        tensor.bytes(8, text.as_bytes());
        let mut message = Message::default();
        message.bytes(1, tag.as_bytes());
        message.bytes(8, &tensor.0);
        message.bytes(9, &metadata.0);
        self.values.push(message.0);
        self
    }

    /// Whether it has values.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// As a protocol buffer.
    pub fn encoded(&self) -> Vec<u8> {
        let mut summary = Message::default();
        for value in &self.values {
            summary.bytes(1, value);
        }
        let mut event = Message::default();
        event.fixed_64(1, self.time.to_bits());
        event.number(2, self.step);
        event.bytes(5, &summary.0);
        event.0
    }
}

/// The event that a file begins with.
pub fn version(time: f64) -> Vec<u8> {
    let mut event = Message::default();
    event.fixed_64(1, time.to_bits());
    event.bytes(3, b"brain.Event:2");
    event.0
}

/// The size of a PNG, from its header.
pub fn png_size(png: &[u8]) -> Option<(u32, u32)> {
    let header = png.strip_prefix(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")?;
    let number = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
    Some((number(0)?, number(4)?))
}

/// A protocol buffer that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn key(&mut self, field: u64, wire_type: u64) {
        self.variable(field << 3 | wire_type);
    }

    /// Seven bits a byte, the lowest first.
    fn variable(&mut self, mut value: u64) {
        while value > 0x7f {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.key(field, 0);
        self.variable(value);
    }

    fn fixed_64(&mut self, field: u64, bits: u64) {
        self.key(field, 1);
        self.0.extend(bits.to_le_bytes());
    }

    fn fixed_32(&mut self, field: u64, bits: u32) {
        self.key(field, 5);
        self.0.extend(bits.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, 2);
        self.variable(bytes.len() as u64);
        self.0.extend(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked out by hand from the encoding's rules.
    #[test]
    fn a_scalar_byte_by_byte() {
        let bytes = Event::new(1.5, 300).scalar("a", 2.0).encoded();
        #[rustfmt::skip]
        let expected = [
            0x09, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, // 1: wall time 1.5
            0x10, 0xac, 0x02,                   // 2: step 300
            0x2a, 10,                           // 5: summary
            0x0a, 8,                            // 1: value
            0x0a, 1, b'a',                      // 1: tag
            0x15, 0, 0, 0, 0x40,                // 2: 2.0
        ];
        assert_eq!(bytes, expected);
        assert_eq!(version(0.0), [&[9, 0, 0, 0, 0, 0, 0, 0, 0, 0x1a, 13][..], b"brain.Event:2"].concat());
    }

    #[test]
    fn a_text_is_a_string_tensor_of_the_text_plugin() {
        let bytes = Event::new(0.0, 0).text("t", "hi").encoded();
        let tensor = [0x42, 8, 0x08, 7, 0x12, 0, 0x42, 2, b'h', b'i'];
        let metadata = [0x4a, 8, 0x0a, 6, 0x0a, 4, b't', b'e', b'x', b't'];
        assert!(bytes.ends_with(&[&tensor[..], &metadata].concat()), "{bytes:x?}");
    }

    #[test]
    fn the_size_of_a_png_is_in_its_header() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x07\x80\0\0\x04\x38\x08\x02";
        assert_eq!(png_size(png), Some((1920, 1080)));
        assert_eq!(png_size(&png[..18]), None);
        assert_eq!(png_size(b"GIF89a"), None);
        let event = Event::new(0.0, 1).image("i", png, (1920, 1080)).encoded();
        assert!(event.windows(png.len()).any(|part| part == png));
    }
}
