//! What a process must not leave behind, whatever ends it: when nobody reads its output any more, it ends in the
//! middle of its work.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct All {
    children: Vec<u32>,
    directories: Vec<PathBuf>,
}

static ALL: Mutex<All> = Mutex::new(All {
    children: Vec::new(),
    directories: Vec::new(),
});

fn all() -> MutexGuard<'static, All> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child of this process ends before its directories are removed.
pub fn note_child(process: u32) {
    all().children.push(process);
}

/// This directory goes when the process ends in the middle of its work.
pub fn note_directory(path: &Path) {
    all().directories.push(path.to_owned());
}

/// Removes all of it. The process ends after this.
pub fn remove() {
    std::mem::take(&mut *all()).remove();
}

impl All {
    fn remove(self) {
        for child in self.children {
            let Some(child) = Pid::from_raw(child as i32) else {
                continue;
            };
            // Who was waited for has ended, and another process may have its number.
            if let Ok(None) = waitpid(Some(child), WaitOptions::NOHANG) {
                let _ = kill_process(child, Signal::KILL);
                let _ = waitpid(Some(child), WaitOptions::empty());
            }
        }
        for directory in self.directories {
            let _ = std::fs::remove_dir_all(directory); // it may have gone already
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn children_end_and_their_directories_go() {
        let name = format!("plinth-leavings-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("it can be made");
        std::fs::write(directory.join("file"), "x").expect("it can be written");
        let sleeps = || Command::new("sleep").arg("60").spawn().expect("it starts");
        let (mut child, mut other) = (sleeps(), sleeps());
        // Not those of other tests of this process.
        let all = All {
            children: vec![child.id()],
            directories: vec![directory.clone()],
        };
        all.remove();
        assert!(!directory.exists());
        assert!(child.wait().is_err(), "somebody has waited for it");
        assert!(other.try_wait().expect("it is a child").is_none());
        other.kill().expect("it lives");
        other.wait().expect("it ends");
    }
}
