//! Programs of the image that are plain scripts.

use std::fs;
use std::path::Path;
use std::process::Command;

/// A headless conversion leaves a window of 24x28 pixels in the profile; other windows are remembered.
#[test]
fn office_forgets_windows_too_small_to_be_seen() {
    let home = tempfile::tempdir().unwrap();
    let settings = home.path().join(".config/libreoffice/4/user/registrymodifications.xcu");
    fs::create_dir_all(settings.parent().unwrap()).unwrap();
    let item = |kind: &str, value: &str| {
        format!(
            "<item oor:path=\"/org.openoffice.Setup/Office/Factories/{kind}\"><prop \
             oor:name=\"ooSetupFactoryWindowAttributes\" oor:op=\"fuse\"><value>{value}</value></prop></item>\n"
        )
    };
    let (small, usual) = (item("Calc", "0,0,24,28;0;;"), item("Writer", "10,-5,1280,720;4;0,0,1920,1052;"));
    let other = "<item oor:path=\"/x\"><prop oor:name=\"y\"><value>1,2,3,4;</value></prop></item>\n";
    fs::write(&settings, format!("{small}{usual}{other}")).unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../desktop/rootfs/usr/local/bin/soffice");
    // no LibreOffice is needed for what comes before its start, and `true` is what it does here
    let script = fs::read_to_string(program).unwrap().replace("/usr/lib/libreoffice/program/soffice", "true");
    let ended = Command::new("sh").args(["-c", &script]).env("HOME", home.path()).status().unwrap();
    assert!(ended.success());
    assert_eq!(fs::read_to_string(&settings).unwrap(), format!("{usual}{other}"));
}

/// A desktop with a firewall has another entry point, which starts the same server.
#[test]
fn an_isolated_desktop_starts_like_any_other() {
    let desktop = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../desktop");
    let text = |name: &str| fs::read_to_string(desktop.join(name)).unwrap();
    let dockerfile = text("Dockerfile");
    let entry = dockerfile.lines().find_map(|line| line.strip_prefix("ENTRYPOINT ")).unwrap();
    let command: Vec<String> = serde_json::from_str(entry).unwrap();
    let isolated = text("rootfs/usr/local/sbin/desktop-isolated");
    assert!(isolated.contains(&format!("set -- {}\n", command.join(" "))), "{command:?}\n{isolated}");
}
