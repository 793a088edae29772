//! Prints how fast the embedded desktop is at each screen size, on one core.

#![expect(clippy::print_stdout, reason = "its result")]

use arpo_env::look::ScreenOptions;
use arpo_env::speed::speed;
use arpo_env::tasks::Suite;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(5.0), |text| text.parse())?;
    let desktop = ScreenOptions::desktop;
    for (suite, options) in [
        (Suite::Pocket, ScreenOptions::pocket()),
        (Suite::Desktop, desktop(640, 480)),
        (Suite::Desktop, desktop(1280, 720)),
        (Suite::Desktop, desktop(1920, 1080)),
    ] {
        let size = format!("{}x{}", options.width, options.height);
        let measured = speed(suite, options, seconds)?;
        let reset = measured.reset_seconds * 1000.0;
        println!("{} {size}: {:.0} steps/s, reset {reset:.2} ms", suite.key(), measured.steps_per_second);
    }
    Ok(())
}
