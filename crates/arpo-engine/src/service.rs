//! The engine on a thread of its own, asked by any number of threads or tasks.
//!
//! Requests that arrive while a pass runs join the next one. New weights take effect between requests: those already
//! taken are answered with the old weights, later ones wait for the new.

use crate::engine::{Completion, Engine, EngineError, RequestId};
use crate::sequence::Request;
use arpo_core::trajectory::PolicyVersion;
use arpo_model::checkpoint::Weights;
use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

type Answer = Box<dyn FnOnce(Result<Completion, EngineError>) + Send>;
type Updated = Box<dyn FnOnce(Result<(), EngineError>) + Send>;

enum Letter {
    Ask(Request, Answer),
    Update(Weights, PolicyVersion, Updated),
}

/// Asks the engine; a clone asks the same one. The thread ends when all are gone.
#[derive(Debug, Clone)]
pub struct EngineHandle {
    letters: Sender<Letter>,
}

/// Starts the thread; it returns the engine at the end.
pub fn start(engine: Engine) -> (EngineHandle, JoinHandle<Engine>) {
    let (letters, inbox) = channel();
    let thread = std::thread::spawn(move || {
        Service { engine, inbox, held: VecDeque::new(), answers: HashMap::new() }.run()
    });
    (EngineHandle { letters }, thread)
}

impl EngineHandle {
    /// Asks for a response; `answer` is called with it on the engine's thread. Dropped without a call if the engine's
    /// thread has ended.
    pub fn ask(
        &self,
        request: Request,
        answer: impl FnOnce(Result<Completion, EngineError>) + Send + 'static,
    ) {
        let _ = self.letters.send(Letter::Ask(request, Box::new(answer)));
    }

    /// Hands over new weights; `updated` is called when later requests see them.
    pub fn update(
        &self,
        weights: Weights,
        version: PolicyVersion,
        updated: impl FnOnce(Result<(), EngineError>) + Send + 'static,
    ) {
        let _ = self.letters.send(Letter::Update(weights, version, Box::new(updated)));
    }
}

struct Service {
    engine: Engine,
    inbox: Receiver<Letter>,
    /// Letters not yet acted on, in the order they came: the first may be weights that wait for the engine to finish.
    held: VecDeque<Letter>,
    answers: HashMap<RequestId, Answer>,
}

impl Service {
    fn run(mut self) -> Engine {
        loop {
            let open = self.receive();
            self.act();
            if self.engine.unanswered() > 0 {
                self.pass();
            } else if self.held.is_empty() {
                if !open {
                    return self.engine;
                }
                match self.inbox.recv() {
                    Ok(letter) => self.held.push_back(letter),
                    Err(_) => return self.engine,
                }
            }
        }
    }

    /// Takes what has come; false when nobody can ask any more.
    fn receive(&mut self) -> bool {
        loop {
            match self.inbox.try_recv() {
                Ok(letter) => self.held.push_back(letter),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn act(&mut self) {
        while let Some(letter) = self.held.pop_front() {
            match letter {
                Letter::Ask(request, answer) => match self.engine.submit(request) {
                    Ok(id) => {
                        self.answers.insert(id, answer);
                    }
                    Err(error) => answer(Err(error)),
                },
                Letter::Update(weights, version, updated) if self.engine.unanswered() == 0 => {
                    updated(self.engine.update(&weights, version));
                }
                waits @ Letter::Update(..) => {
                    self.held.push_front(waits);
                    return;
                }
            }
        }
    }

    fn pass(&mut self) {
        match self.engine.pass() {
            Ok(completed) => {
                for (id, completion) in completed {
                    if let Some(answer) = self.answers.remove(&id) {
                        answer(Ok(completion));
                    }
                }
            }
            Err(error) => {
                // nothing that was running can be trusted: all are told, and the engine starts afresh
                let message = error.to_string();
                self.engine.abandon();
                for (_, answer) in self.answers.drain() {
                    answer(Err(EngineError::Abandoned(message.clone())));
                }
            }
        }
    }
}
