//! The worker's program on its way to the hosts: a zip that Ray stores and unpacks as a job's working directory.

use super::client::{Client, RayError};
use arpo_suite::SuiteError;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::{Cursor, Write as _};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The name of the program in the package.
pub(super) const PROGRAM: &str = "arpo-worker";

/// Stores the program in the cluster, unless it is there already, and returns its address for `working_dir`. Ray removes
/// packages that no job uses.
pub(super) fn store(client: &Client, program: &Path) -> Result<String, SuiteError> {
    let failed = |problem: String| SuiteError::Service(format!("{}: {problem}", program.display()));
    let bytes = std::fs::read(program).map_err(|error| failed(error.to_string()))?;
    let name = package_name(&bytes);
    let ray = |error: RayError| SuiteError::Service(error.to_string());
    if !client.has_package(&name).map_err(ray)? {
        let zip = packed(&bytes).map_err(|error| failed(error.to_string()))?;
        client.upload_package(&name, &zip).map_err(ray)?;
    }
    Ok(format!("gcs://{name}"))
}

/// The same for the same program, so that it is uploaded once. Ray takes a package by this name to be what it was, for ever.
fn package_name(program: &[u8]) -> String {
    let digest = Sha256::digest(program);
    let mut name = String::from("_ray_pkg_arpo_");
    for byte in &digest[..12] {
        let _ = write!(name, "{byte:02x}");
    }
    name + ".zip"
}

fn packed(program: &[u8]) -> zip::result::ZipResult<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(vec![]));
    // the lowest level: a run waits for it, and the network is faster than a processor at the highest
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(1))
        .unix_permissions(0o755);
    writer.start_file(PROGRAM, options)?;
    writer.write_all(program)?;
    Ok(writer.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_package_has_the_program_ready_to_run() {
        let mut archive = zip::ZipArchive::new(Cursor::new(packed(b"program").unwrap())).unwrap();
        let mut file = archive.by_name(PROGRAM).unwrap();
        assert_eq!(file.unix_mode().map(|mode| mode & 0o777), Some(0o755));
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "program");
        assert!(package_name(b"a") != package_name(b"b"));
    }
}
