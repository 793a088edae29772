//! The framing of TensorBoard's files (TFRecord): every record is preceded by its length and followed by a checksum, and
//! the length has a checksum of its own. Checksums are CRC-32C, rotated and offset so that a checksum of data that
//! contains checksums stays useful.

/// The reversed polynomial of CRC-32C (Castagnoli).
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// What is added to a rotated checksum.
const MASK: u32 = 0xa282_ead8;

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

/// CRC-32C.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, &byte| crc >> 8 ^ TABLE[((crc ^ u32::from(byte)) & 0xff) as usize])
}

fn masked(bytes: &[u8]) -> [u8; 4] {
    checksum(bytes).rotate_right(15).wrapping_add(MASK).to_le_bytes()
}

/// A record with its frame.
pub fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), data, &masked(data)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of the algorithm, and the test vectors of RFC 3720, B.4.
    #[test]
    fn checksums_are_those_of_the_standard() {
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
        assert_eq!(checksum(&[0; 32]), 0x8a91_36aa);
        assert_eq!(checksum(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(checksum(&std::array::from_fn::<u8, 32, _>(|at| at as u8)), 0x46dd_794e);
    }

    #[test]
    fn a_record_has_its_length_and_two_checksums() {
        let framed = record(b"abc");
        assert_eq!(framed.len(), 8 + 4 + 3 + 4);
        assert_eq!(framed[..8], [3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(framed[12..15], *b"abc");
        // unmasked again as a reader does it
        let stored = u32::from_le_bytes(framed[15..].try_into().unwrap());
        assert_eq!(stored.wrapping_sub(MASK).rotate_left(15), checksum(b"abc"));
    }
}
