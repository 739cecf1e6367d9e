//! What a process tells the service that it hosts, whatever the service is.

use std::any::Any;
use std::rc::Rc;

/// How the process tells the person who has started it that it listens.
pub struct Tell(pub fn(&str));

/// Values of the kinds' own types, at most one of each.
#[derive(Clone, Default)]
pub struct Settings(Vec<Rc<dyn Any>>);

impl Settings {
    pub fn with<T: 'static>(mut self, value: T) -> Settings {
        self.0.push(Rc::new(value));
        self
    }

    pub fn get<T: 'static>(&self) -> Option<Rc<T>> {
        let mut found = self.0.iter().filter_map(|v| v.clone().downcast().ok());
        found.next()
    }
}
