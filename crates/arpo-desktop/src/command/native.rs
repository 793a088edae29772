//! Python commands that can be run without Python.

use crate::script::{self, Effect};

/// What to do instead of starting Python.
#[derive(Debug, Clone, PartialEq)]
pub enum Native {
    /// Send pointer and keyboard events.
    Perform(Vec<Effect>),
    /// Print this.
    Print(String),
}

/// The native form of a program with its arguments; none if it is not Python or not supported.
pub fn native(words: &[String]) -> Option<Native> {
    let code = script_of(words)?;
    script::read(code).map(Native::Perform).or_else(|| platform(code).map(Native::Print))
}

/// The code of a `python -c`; none if it is another command.
pub fn script_of(words: &[String]) -> Option<&str> {
    let [program, flag, code] = words else { return None };
    let name = program.rsplit('/').next()?;
    (matches!(name, "python" | "python3") && flag == "-c").then_some(code)
}

/// The response to OSWorld's platform query.
fn platform(code: &str) -> Option<String> {
    let mut statements = code.split(';').map(str::trim).filter(|statement| !statement.is_empty());
    let output = match statements.next_back()? {
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
    (is_known && has_platform).then(|| format!("{output}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Option<Native> {
        native(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn commands_of_clients_run_without_python() {
        let prefix = "import pyautogui; import time; pyautogui.FAILSAFE = False; ";
        let click = format!("{prefix}pyautogui.click(1, 2)");
        assert!(
            matches!(read(&["python", "-c", &click]), Some(Native::Perform(effects)) if effects.len() == 1)
        );
        assert!(matches!(read(&["/usr/bin/python3", "-c", &click]), Some(Native::Perform(_))));
        let system = format!("{prefix}import platform; print(platform.system())");
        assert_eq!(read(&["python", "-c", &system]), Some(Native::Print("Linux\n".into())));
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
