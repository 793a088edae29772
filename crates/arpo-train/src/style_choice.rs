//! Which style an agent has: as the configuration says, else by the model's name and architecture.

use crate::TrainError;
use crate::base_model;
use arpo_agent::style::{ActionFormat, AgentStyle, PastTurns};
use arpo_agent::window::ScreenshotWindow;
use arpo_agent::{computer_use, prompt};
use arpo_core::config::{AgentConfig, Config, PromptLength, StyleChoice, SystemPrompt};
use arpo_image::ImageProcessor;
use arpo_model::config::ModelConfig;

/// Parts of names that tell a style, whatever the architecture.
const NAMES: [(&str, StyleChoice); 3] =
    [("evocua", StyleChoice::Evocua), ("ui-tars", StyleChoice::Uitars), ("uitars", StyleChoice::Uitars)];

/// Parts of names of models on a server, whose architecture is not known, that act through `computer_use`.
const SERVED_NAMES: [&str; 2] = ["qwen3-vl", "qwen3vl"];

/// The style of a local model: as configured, else by its name and architecture.
pub fn of_model(config: &Config, model: &ModelConfig) -> StyleChoice {
    match config.agent.style {
        StyleChoice::Auto => by_name(&config.model.base).unwrap_or(by_architecture(model)),
        given => given,
    }
}

fn by_name(name: &str) -> Option<StyleChoice> {
    let name = name.to_lowercase();
    NAMES.into_iter().find(|(part, _)| name.contains(part)).map(|(_, style)| style)
}

fn by_architecture(model: &ModelConfig) -> StyleChoice {
    match model.architecture.model_type() {
        "qwen3_vl" => StyleChoice::ComputerUse,
        _ => StyleChoice::Uitars,
    }
}

/// Replaces what the configuration leaves to the model (style, limits of screenshots) by the model's own; returns a line that
/// says which style was taken, if it was not given.
pub fn settle(config: &mut Config) -> Result<Option<String>, TrainError> {
    let (model, side_files) = base_model::check(&config.model.base)?;
    let processor =
        side_files.get("preprocessor_config.json").and_then(|file| ImageProcessor::parse(file).ok());
    if let Some(limits) = processor.map(|processor| processor.limits) {
        let AgentConfig { min_pixels, max_pixels, .. } = &mut config.agent;
        *min_pixels = if *min_pixels == 0 { limits.min } else { *min_pixels };
        *max_pixels = if *max_pixels == 0 { limits.max } else { *max_pixels };
    }
    if config.agent.style != StyleChoice::Auto {
        return Ok(None);
    }
    config.agent.style = of_model(config, &model);
    let why = match by_name(&config.model.base) {
        Some(_) => format!("by the name {:?}", config.model.base),
        None => format!("{} is a {}", config.model.base, model.architecture.model_type()),
    };
    Ok(Some(taken(config.agent.style, &why)))
}

/// The same for a model behind a server, of which only the name is known.
pub fn settle_served(config: &mut Config) -> Option<String> {
    if config.agent.style != StyleChoice::Auto {
        return None;
    }
    let name = config.chat.model.to_lowercase();
    let served = SERVED_NAMES.iter().any(|part| name.contains(part)).then_some(StyleChoice::ComputerUse);
    config.agent.style = by_name(&name).or(served).unwrap_or(StyleChoice::Uitars);
    Some(taken(config.agent.style, &format!("by the name {:?}", config.chat.model)))
}

fn taken(style: StyleChoice, why: &str) -> String {
    format!("style of the agent: {} ({why}; `agent.style` sets another)", name(style))
}

/// A style's name in configurations.
pub fn name(style: StyleChoice) -> &'static str {
    match style {
        StyleChoice::Auto => "auto",
        StyleChoice::Uitars => "uitars",
        StyleChoice::ComputerUse => "computer_use",
        StyleChoice::Evocua => "evocua",
    }
}

/// A chosen style with the options of a configuration. `auto` stands for UI-TARS, if nothing has settled it.
pub fn style(agent: &AgentConfig, choice: StyleChoice) -> AgentStyle {
    let window = ScreenshotWindow::new(agent.max_screenshots, agent.window_advance);
    let short = agent.prompt == PromptLength::Short;
    match choice {
        StyleChoice::Auto | StyleChoice::Uitars if short => short_uitars(window),
        StyleChoice::Auto | StyleChoice::Uitars => {
            let system = match agent.system_prompt {
                SystemPrompt::Original => prompt::SYSTEM,
                SystemPrompt::Corrected => prompt::SYSTEM_CORRECTED,
            };
            AgentStyle { system: system.into(), ..AgentStyle::uitars(window) }
        }
        StyleChoice::ComputerUse | StyleChoice::Evocua if short => short_computer_use(window, agent.grid),
        StyleChoice::ComputerUse => AgentStyle::computer_use(window, agent.grid),
        StyleChoice::Evocua => AgentStyle {
            system: computer_use::SYSTEM_EVOCUA.into(),
            ..AgentStyle::computer_use(window, agent.grid)
        },
    }
}

/// The prompt of the built-in model: the instruction alone.
pub fn short_uitars(window: ScreenshotWindow) -> AgentStyle {
    AgentStyle {
        system: "GUI agent".into(),
        template: "{instruction}".into(),
        window,
        past: PastTurns::Responses { restore_box_tokens: false },
        format: ActionFormat::UITARS,
    }
}

/// The same for a small model that acts through `computer_use`.
pub fn short_computer_use(window: ScreenshotWindow, grid: u32) -> AgentStyle {
    AgentStyle {
        system: computer_use::SYSTEM_SHORT.into(),
        template: computer_use::TEMPLATE_SHORT.into(),
        ..AgentStyle::computer_use(window, grid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_agent::style::Grammar;
    use arpo_model::config::{pocket, pocket_qwen3};

    fn chosen(base: &str, model: &ModelConfig) -> StyleChoice {
        let mut config = Config::default();
        config.model.base = base.into();
        of_model(&config, model)
    }

    #[test]
    fn names_and_architectures_tell_the_style() {
        for (base, model, style) in [
            ("pocket", pocket(), StyleChoice::Uitars),
            ("models/UI-TARS-1.5-7B", pocket(), StyleChoice::Uitars),
            ("models/Qwen3-VL-8B-Instruct", pocket_qwen3(), StyleChoice::ComputerUse),
            ("models/EvoCUA-8B", pocket_qwen3(), StyleChoice::Evocua),
            ("runs/ui-tars-on-qwen3", pocket_qwen3(), StyleChoice::Uitars),
        ] {
            assert_eq!(chosen(base, &model), style, "{base}");
        }
        let mut config = Config::default();
        config.agent.style = StyleChoice::Uitars;
        assert_eq!(of_model(&config, &pocket_qwen3()), StyleChoice::Uitars, "what is given counts");
    }

    #[test]
    fn a_served_model_is_known_by_its_name_and_the_style_is_said_once() {
        let mut config = Config::default();
        config.chat.model = "Qwen/Qwen3-VL-8B-Instruct".into();
        let said = settle_served(&mut config).unwrap();
        assert_eq!(config.agent.style, StyleChoice::ComputerUse);
        assert!(said.starts_with("style of the agent: computer_use (by the name"), "{said}");
        assert_eq!(settle_served(&mut config), None, "a style that is given needs no words");
        config.agent.style = StyleChoice::Auto;
        config.chat.model = "some-model".into();
        assert!(settle_served(&mut config).unwrap().contains("uitars"));
    }

    #[test]
    fn the_built_in_model_settles_as_before() {
        let mut config = Config::default();
        (config.agent.min_pixels, config.agent.max_pixels) = (0, 0);
        let said = settle(&mut config).unwrap().unwrap();
        assert_eq!(said, "style of the agent: uitars (pocket is a qwen2_5_vl; `agent.style` sets another)");
        assert_eq!((config.agent.min_pixels, config.agent.max_pixels), (28 * 28, 28 * 28 * 1280));
        config.agent.prompt = PromptLength::Short;
        let short = |choice| style(&config.agent, choice);
        assert_eq!(short(StyleChoice::Uitars).system, "GUI agent");
        assert_eq!(short(StyleChoice::ComputerUse).format.grammar, Grammar::ComputerUse);
        let full = |choice| style(&AgentConfig::default(), choice).system;
        assert_ne!(full(StyleChoice::Evocua), full(StyleChoice::ComputerUse));
    }
}
