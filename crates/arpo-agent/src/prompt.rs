//! The prompt of every episode: the one UI-TARS was trained with.
//!
//! It must match the checkpoint's training prompt exactly, odd spaces included.

/// The UI-TARS prompt with its slot.
pub const UITARS: &str = include_str!("uitars_prompt.txt");

/// Marks where the instruction goes.
const SLOT: &str = "{instruction}";

/// The system prompt of ARPO's training; the mistake must stay.
pub const SYSTEM: &str = "Your are a helpful assistant.";

/// The corrected system prompt, as OSWorld's own agents use it.
pub const SYSTEM_CORRECTED: &str = "You are a helpful assistant.";

/// Replaces a screenshot that has left the context.
pub const OMITTED_SCREENSHOT: &str = "[screenshot omitted]";

/// The prompt for one task. `template` has one slot, `{instruction}`; braces in the instruction have no meaning.
pub fn for_task(template: &str, instruction: &str) -> String {
    match template.split_once(SLOT) {
        Some((before, after)) => format!("{before}{instruction}{after}"),
        None => format!("{template}\n{instruction}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_is_filled_once() {
        assert_eq!(for_task("do: {instruction}!", "a {instruction} b"), "do: a {instruction} b!");
        assert_eq!(for_task("do this", "x"), "do this\nx");
        assert!(for_task(UITARS, "open it").ends_with("## User Instruction\nopen it\n"));
    }
}
