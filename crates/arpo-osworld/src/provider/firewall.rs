//! The firewall of an isolated desktop: it answers whoever asks it, and reaches nobody itself.
//!
//! An internal network keeps a container from the outside, and not from servers of the engine's machine that listen on all
//! addresses: they answer at the network's gateway. So a program of the image sets rules in the container's own network
//! namespace, with capabilities that nobody in the container has; the rules go with the container.

use super::error::ProviderError;
use super::hosted::Hosted;
use bollard::exec::StartExecResults;
use bollard::models::ExecConfig;
use futures_util::StreamExt;
use std::time::Duration;

/// The program of the image that sets the rules.
const PROGRAM: &str = "/usr/local/sbin/desktop-firewall";

impl Hosted {
    /// Closes a container that has just been started off from everything outside of it.
    pub(super) fn isolate(&self, name: &str, limit: Duration) -> Result<(), ProviderError> {
        let id = name.to_owned();
        let config = ExecConfig {
            cmd: Some(vec![PROGRAM.to_owned()]),
            user: Some("0".into()),
            privileged: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..ExecConfig::default()
        };
        let ended = self.engine.call("set a desktop's firewall", limit, |docker| async move {
            let exec = docker.create_exec(&id, config).await?;
            let mut text = String::new();
            if let StartExecResults::Attached { mut output, .. } = docker.start_exec(&exec.id, None).await? {
                while let Some(part) = output.next().await {
                    text.push_str(&String::from_utf8_lossy(part?.as_ref()));
                }
            }
            Ok((docker.inspect_exec(&exec.id).await?.exit_code, text))
        });
        let problem = match ended {
            Ok((Some(0), _)) => return Ok(()),
            Ok((_, text)) => text.split_whitespace().collect::<Vec<_>>().join(" "),
            Err(ProviderError::Engine { problem, .. }) => problem,
            Err(error) => return Err(error),
        };
        Err(ProviderError::NotIsolated { name: name.to_owned(), problem })
    }
}
