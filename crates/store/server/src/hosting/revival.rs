//! Log and storage servers that had to end because of their disk, or could not start. Their files stay as they are,
//! and the server comes back from them when the disk works again, unless the cluster goes on without it by then.

use super::{Hosting, Kind, is_over};
use plinth_core::{Epoch, Error, Result, Tag, Uid};
use plinth_protocol::control::ClusterInfo;
use plinth_runtime::{Backoff, Duration, probe, trace, trace_warn};
use std::rc::Rc;

const TRY_AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// A server that waits, with its epoch or its tag, if it ever ran: its files may not be readable now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stored {
    Log(Option<Epoch>),
    Storage(Option<Tag>),
}

impl Hosting {
    pub(super) fn come_back_later(self: &Rc<Self>, id: Uid, stored: Stored, error: Error) {
        trace_warn!("RoleWaitsForDisk", "id" => id, "kind" => format!("{stored:?}"), "error" => error);
        let (hosting, disk, info) = (Rc::downgrade(self), self.disk.clone(), self.info.clone());
        let coming_back = plinth_runtime::spawn("come back", async move {
            let mut backoff = TRY_AGAIN;
            loop {
                backoff.wait().await;
                disk.works().await;
                let Some(hosting) = hosting.upgrade() else {
                    return;
                };
                if info.with(|info| is_forgotten(info, id, stored)) {
                    probe!("role_is_forgotten_before_it_is_back");
                    return hosting.remove_files(id).await;
                }
                match hosting.come_back(id, stored).await {
                    Ok(()) => {
                        probe!("role_comes_back_with_its_disk");
                        trace!("RoleIsBack", "id" => id, "kind" => format!("{stored:?}"));
                        // The description may have arrived before the role was back: a role that is over ends now.
                        if let Some(info) = info.get() {
                            hosting.obey(&info).await;
                        }
                        return;
                    }
                    Err(error) if error.is_damage() => {
                        let _ = hosting.not_back(id, stored, error); // it is damage
                        return;
                    }
                    Err(error) => {
                        trace_warn!("RoleStillWaits", "id" => id, "kind" => format!("{stored:?}"), "error" => error);
                    }
                }
            }
        });
        coming_back.detach();
    }

    async fn come_back(self: &Rc<Self>, id: Uid, stored: Stored) -> Result<()> {
        // After a failed write, data that the system keeps in memory may never have reached the disk.
        let forgotten = self.directory.forget_cached(id).await;
        forgotten.map_err(|_| Error::io_error)?;
        match stored {
            Stored::Log(_) => self.bring_back_log(id).await,
            Stored::Storage(_) => self.bring_back_storage(id).await,
        }
    }
}

/// True if the cluster has gone on for good without the server. A description from before the server was made does
/// not name it either, so the answer is false for a server whose epoch or tag is not known.
pub(super) fn is_forgotten(info: &Option<ClusterInfo>, id: Uid, stored: Stored) -> bool {
    let kind = match stored {
        Stored::Log(epoch) => epoch.map(Kind::Log),
        Stored::Storage(tag) => tag.map(Kind::Storage),
    };
    let accepted = info.as_ref().filter(|info| info.accepting);
    matches!((accepted, kind), (Some(info), Some(kind)) if is_over(info, id, kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_protocol::control::ClientInfo;
    use plinth_protocol::log::LogSystem;
    use plinth_rpc::Interface;

    #[test]
    fn files_are_not_removed_on_the_word_of_news_older_than_their_role() {
        let id = Uid(7);
        let news = |epoch| {
            Some(ClusterInfo {
                id: 1,
                controller: Interface::new(([127, 0, 0, 1], 1).into(), Uid(1)),
                epoch,
                accepting: true,
                database: plinth_protocol::database::DatabaseId::FORMER,
                log_system: LogSystem {
                    generations: vec![],
                },
                servers: vec![],
                next_tag: 3,
                ratekeeper: None,
                distributor: None,
                classes: vec![],
                knobs: vec![],
                client: ClientInfo {
                    id: 1,
                    grv_proxies: vec![],
                    commit_proxies: vec![],
                },
            })
        };
        let log = |epoch| Stored::Log(Some(epoch));
        assert!(!is_forgotten(&news(12), id, log(13)));
        assert!(is_forgotten(&news(13), id, log(13)));
        assert!(is_forgotten(&news(14), id, log(13)));
        assert!(!is_forgotten(&news(14), id, Stored::Log(None)));
        let storage = |tag| Stored::Storage(Some(Tag(tag)));
        assert!(!is_forgotten(&news(12), id, storage(3)));
        assert!(is_forgotten(&news(12), id, storage(2)));
        assert!(!is_forgotten(&news(12), id, Stored::Storage(None)));
        assert!(!is_forgotten(&None, id, log(1)));
    }
}
