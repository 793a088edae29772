//! Commands that ask for Python and can be answered without it.

use crate::script::{self, Deed};

/// What to do instead of starting Python.
#[derive(Debug, Clone, PartialEq)]
pub enum Native {
    /// Move the pointer and press keys.
    Perform(Vec<Deed>),
    /// Say this.
    Say(String),
}

/// What a program with its arguments comes to without Python; none if it is not that, or is more than is understood.
pub fn native(words: &[String]) -> Option<Native> {
    let [program, flag, code] = words else { return None };
    let name = program.rsplit('/').next()?;
    if !matches!(name, "python" | "python3") || flag != "-c" {
        return None;
    }
    script::read(code).map(Native::Perform).or_else(|| platform(code).map(Native::Say))
}

/// What OSWorld's client asks for when it wants to know the platform.
fn platform(code: &str) -> Option<String> {
    let mut statements = code.split(';').map(str::trim).filter(|statement| !statement.is_empty());
    let answer = match statements.next_back()? {
        "print(platform.system())" => "Linux",
        "print(platform.machine())" => std::env::consts::ARCH,
        _ => return None,
    };
    let mut has_platform = false;
    let is_known = statements.all(|statement| {
        has_platform |= statement == "import platform";
        matches!(
            statement,
            "import platform" | "import pyautogui" | "import time" | "pyautogui.FAILSAFE = False"
        )
    });
    (is_known && has_platform).then(|| format!("{answer}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Option<Native> {
        native(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn clients_are_answered_without_python() {
        let prefix = "import pyautogui; import time; pyautogui.FAILSAFE = False; ";
        let click = format!("{prefix}pyautogui.click(1, 2)");
        assert!(matches!(read(&["python", "-c", &click]), Some(Native::Perform(deeds)) if deeds.len() == 1));
        assert!(matches!(read(&["/usr/bin/python3", "-c", &click]), Some(Native::Perform(_))));
        let system = format!("{prefix}import platform; print(platform.system())");
        assert_eq!(read(&["python", "-c", &system]), Some(Native::Say("Linux\n".into())));
        for words in [
            &["python", "-c", "import os; print(os.name)"][..],
            &["python", "-c", "print(platform.system())"],
            &["python", &click],
            &["bash", "-c", &click],
            &["python", "-c", &click, "more"],
            &[],
        ] {
            assert_eq!(read(words), None, "{words:?}");
        }
    }
}
