//! The words that open every episode: the prompt UI-TARS was trained with.
//!
//! It is a contract with the checkpoint, to the letter, odd spaces included.

/// The UI-TARS prompt with its slot.
pub const UITARS: &str = include_str!("uitars_prompt.txt");

/// Marks where the instruction goes.
const SLOT: &str = "{instruction}";

/// What ARPO's agents were told before anything else, in training; the mistake is part of the contract.
pub const SYSTEM: &str = "Your are a helpful assistant.";

/// The same in good English, as OSWorld's own agents are told it.
pub const SYSTEM_CORRECTED: &str = "You are a helpful assistant.";

/// Stands where a screenshot was that has made room for later ones.
pub const OMITTED_SCREENSHOT: &str = "[screenshot omitted]";

/// A prompt for one task. `template` has one slot, `{instruction}`; braces in the instruction mean nothing.
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
