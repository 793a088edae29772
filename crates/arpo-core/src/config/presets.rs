//! The configurations that ship with the program: the TOML files under `configs/`.

/// Names and TOML texts, the default first.
pub const PRESETS: [(&str, &str); 6] = [
    ("quick", include_str!("../../../../configs/quick.toml")),
    ("endless", include_str!("../../../../configs/endless.toml")),
    ("paper", include_str!("../../../../configs/paper.toml")),
    ("released", include_str!("../../../../configs/released.toml")),
    ("osworld", include_str!("../../../../configs/osworld.toml")),
    ("osworld-subset32", include_str!("../../../../configs/osworld-subset32.toml")),
];

/// The TOML text of a preset.
pub fn preset(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
