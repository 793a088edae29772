//! The configurations that ship with the program: the TOML files under `configs/`.

const QUICK: &str = include_str!("../../../../configs/quick.toml");

/// Names and TOML texts, the default first. Later texts of a preset override earlier ones.
pub const PRESETS: [(&str, &[&str]); 7] = [
    ("quick", &[QUICK]),
    ("gspo", &[QUICK, include_str!("../../../../configs/gspo.toml")]),
    ("sapo", &[QUICK, include_str!("../../../../configs/sapo.toml")]),
    ("paper", &[include_str!("../../../../configs/paper.toml")]),
    ("released", &[include_str!("../../../../configs/released.toml")]),
    ("osworld", &[include_str!("../../../../configs/osworld.toml")]),
    ("osworld-subset32", &[include_str!("../../../../configs/osworld-subset32.toml")]),
];

/// The TOML texts of a preset.
pub fn preset(name: &str) -> Option<&'static [&'static str]> {
    PRESETS.iter().find(|(known, _)| *known == name).map(|(_, texts)| *texts)
}
