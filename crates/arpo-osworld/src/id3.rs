//! The tags at the beginning of an MP3 file: ID3 2.2 to 2.4, the texts that players show.

use crate::error::MetricError;
use std::collections::BTreeMap;

/// mutagen's simple names of frames, with the names of 2.3 and 2.4 and those of 2.2.
const NAMES: [(&str, &str, &str); 14] = [
    ("title", "TIT2", "TT2"),
    ("artist", "TPE1", "TP1"),
    ("album", "TALB", "TAL"),
    ("albumartist", "TPE2", "TP2"),
    ("conductor", "TPE3", "TP3"),
    ("composer", "TCOM", "TCM"),
    ("lyricist", "TEXT", "TXT"),
    ("tracknumber", "TRCK", "TRK"),
    ("discnumber", "TPOS", "TPA"),
    ("bpm", "TBPM", "TBP"),
    ("copyright", "TCOP", "TCR"),
    ("encodedby", "TENC", "TEN"),
    ("language", "TLAN", "TLA"),
    ("organization", "TPUB", "TPB"),
];
const HEADER: usize = 10;

/// Texts by the names of their frames.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tags(BTreeMap<String, Vec<String>>);

impl Tags {
    /// Reads the tags; a file without any raises.
    pub fn read(bytes: &[u8]) -> Result<Self, MetricError> {
        let broken = || MetricError::raises("no ID3 tags");
        let header = bytes.get(..HEADER).filter(|header| header.starts_with(b"ID3")).ok_or_else(broken)?;
        let (version, flags) = (header[3], header[5]);
        if !(2..=4).contains(&version) {
            return Err(broken());
        }
        let end = HEADER + seven_bits(&header[6..]);
        let mut body = bytes.get(HEADER..end.min(bytes.len())).ok_or_else(broken)?.to_vec();
        if flags & 0x80 != 0 && version < 4 {
            body = synchronised(&body);
        }
        let mut rest = &body[..];
        if flags & 0x40 != 0 && version > 2 {
            let size = rest.get(..4).ok_or_else(broken)?;
            let size = if version == 4 { seven_bits(size) } else { eight_bits(size) + 4 };
            rest = rest.get(size..).ok_or_else(broken)?;
        }
        let (name_length, frame_header) = if version == 2 { (3, 6) } else { (4, 10) };
        let mut tags = BTreeMap::new();
        while let Some(header) = rest.get(..frame_header).filter(|header| header[0] != 0) {
            let size = &header[name_length..2 * name_length];
            let size = if version == 4 { seven_bits(size) } else { eight_bits(size) };
            let Some(content) = rest.get(frame_header..frame_header + size) else { break };
            let name = String::from_utf8_lossy(&header[..name_length]).into_owned();
            if let (true, [encoding, text @ ..]) = (name.starts_with('T'), content) {
                tags.insert(name, values(*encoding, text));
            }
            rest = &rest[frame_header + size..];
        }
        Ok(Self(tags))
    }

    /// The values of a tag by its simple name.
    pub fn named(&self, name: &str) -> Option<&[String]> {
        let (_, now, once) = NAMES.iter().find(|(simple, ..)| *simple == name.to_lowercase())?;
        self.0.get(*now).or_else(|| self.0.get(*once)).map(Vec::as_slice)
    }
}

fn seven_bits(bytes: &[u8]) -> usize {
    bytes.iter().take(4).fold(0, |number, byte| number << 7 | usize::from(byte & 0x7f))
}

fn eight_bits(bytes: &[u8]) -> usize {
    bytes.iter().take(4).fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Without the zeros that were put after every 0xff.
fn synchronised(bytes: &[u8]) -> Vec<u8> {
    let after_mark = |at: usize| at > 0 && bytes[at - 1] == 0xff && bytes[at] == 0;
    (0..bytes.len()).filter(|at| !after_mark(*at)).map(|at| bytes[at]).collect()
}

/// The texts of a frame, which are separated by zeros.
fn values(encoding: u8, bytes: &[u8]) -> Vec<String> {
    let text: String = match encoding {
        0 => bytes.iter().map(|byte| char::from(*byte)).collect(),
        1 | 2 => {
            let is_little = encoding == 1 && !bytes.starts_with(&[0xfe, 0xff]);
            let pairs = bytes.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
            let units = pairs.map(if is_little { u16::from_le_bytes } else { u16::from_be_bytes });
            let letters =
                char::decode_utf16(units).map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER));
            letters.filter(|letter| *letter != '\u{feff}').collect()
        }
        _ => String::from_utf8_lossy(bytes).into_owned(),
    };
    text.trim_end_matches('\0').split('\0').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, frames: &[(&str, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (name, content) in frames {
            body.extend_from_slice(name.as_bytes());
            body.extend_from_slice(&(content.len() as u32).to_be_bytes()[usize::from(version == 2)..]);
            body.extend_from_slice(if version == 2 { &[] } else { &[0, 0] });
            body.extend_from_slice(content);
        }
        let size = [0, 0, (body.len() >> 7) as u8, (body.len() & 0x7f) as u8];
        [b"ID3", &[version, 0, 0][..], &size, &body, b"\xff\xfbmusic"].concat()
    }

    #[test]
    fn texts_of_every_version_and_encoding() {
        let utf16: Vec<u8> =
            [1, 0xff, 0xfe].into_iter().chain("Ü".encode_utf16().flat_map(u16::to_le_bytes)).collect();
        let tags =
            Tags::read(&file(3, &[("TIT2", b"\0Missing You\0"), ("TPE1", &utf16), ("TALB", b"\x03a\0b")]))
                .unwrap();
        assert_eq!(tags.named("title"), Some(&["Missing You".to_owned()][..]));
        assert_eq!(tags.named("artist"), Some(&["Ü".to_owned()][..]));
        assert_eq!(tags.named("Album").map(<[String]>::len), Some(2));
        assert_eq!((tags.named("genre"), tags.named("bpm")), (None, None));
        assert_eq!(
            Tags::read(&file(2, &[("TT2", b"\0x")])).unwrap().named("title"),
            Some(&["x".to_owned()][..])
        );
        assert!(Tags::read(b"\xff\xfbmusic").is_err() && Tags::read(b"ID3").is_err());
    }
}
